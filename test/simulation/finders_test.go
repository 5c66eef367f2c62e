package simulation

// finders are seeds that find faults. They are played first, since a search plays many thousands;
// where a step of the simulation has changed, it is made again, and says which seeds find them now.
var finders = map[Fault]uint64{
	M1: 58, M2: 0, M4: 496, M5: 674, M6: 149, M7: 149, M8: 149, M9: 0,
	M10: 8, M11: 94, M12: 1900, M13: 44, M14: 35, M15: 19, M16: 3583, M17: 260, M18: 57, M20: 13,
	M21: 57, M22: 3606, M23: 17, M24: 57, M25: 301, M26: 144, M27: 80, M28: 157, M29: 1, M30: 7,
	M31: 8, M32: 3, M33: 1941, M34: 51, M36: 6708, M37: 115, M38: 5, M39: 51, M40: 9,
	M41: 8, M42: 7, M43: 222, M44: 285, M45: 25, M46: 148, M47: 1596, M48: 199, M49: 4992, M50: 149,
	M51: 97, M52: 6, M54: 8770, M55: 196, M56: 665, M57: 17, M58: 83, M59: 616, M60: 1251,
	M61: 476, M62: 83, M63: 582, M64: 12, M65: 4071, M66: 18, M67: 682, M68: 21, M69: 34, M70: 3,
}
