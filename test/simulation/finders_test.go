package simulation

// finders are seeds that find faults. They are played first, since a search plays many thousands;
// where a step of the simulation has changed, it is made again, and says which seeds find them now.
var finders = map[Fault]uint64{
	M1: 148, M2: 1, M3: 1255, M4: 40, M5: 177, M6: 89, M7: 182, M8: 8, M9: 0, M10: 2,
	M11: 2188, M12: 143, M13: 4, M14: 27, M15: 354, M16: 1371, M17: 57, M18: 68, M19: 2297, M20: 43,
	M21: 34, M22: 191, M23: 15, M24: 27, M25: 137, M26: 3, M27: 3, M28: 308, M29: 7, M30: 25,
	M31: 1, M32: 7, M33: 456, M34: 2, M35: 2, M36: 828, M37: 125, M38: 4, M39: 193, M40: 1,
	M41: 22, M42: 1, M43: 6364, M44: 110, M45: 22, M46: 132, M47: 102, M48: 291, M49: 1895, M50: 8,
	M51: 97, M52: 5, M53: 2966, M54: 4545, M55: 899, M56: 369, M57: 67, M58: 78, M59: 685, M60: 4711,
	M61: 9752, M62: 17, M63: 325,
}
