package simulation

// finders are seeds that find faults. They are played first, since a search plays many thousands;
// where a step of the simulation has changed, it is made again, and says which seeds find them now.
var finders = map[Fault]uint64{
	M1: 58, M2: 0, M4: 496, M5: 1105, M6: 502, M7: 1097, M8: 149, M9: 0,
	M10: 22, M11: 234, M12: 802, M13: 11, M14: 15, M15: 45, M16: 4133, M17: 8, M18: 132, M20: 13,
	M21: 57, M22: 83, M23: 17, M24: 51, M25: 45, M26: 162, M27: 63, M28: 157, M29: 1, M30: 7,
	M31: 8, M32: 3, M33: 1351, M34: 51, M36: 224, M37: 167, M38: 5, M39: 70, M40: 50,
	M41: 8, M42: 7, M43: 5445, M44: 13, M45: 5, M46: 9, M47: 480, M48: 501, M49: 502, M50: 149,
	M51: 134, M52: 6, M54: 563, M55: 4058, M56: 302, M57: 295, M58: 302, M59: 600, M60: 3376,
	M61: 600, M62: 157, M63: 302, M64: 12, M65: 42717, M66: 18, M67: 827, M68: 21, M69: 34, M70: 3, M71: 101, M72: 14,
}
