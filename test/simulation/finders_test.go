package simulation

// finders are seeds that find faults. They are played first, since a search plays many thousands;
// where a step of the simulation has changed, it is made again, and says which seeds find them now.
var finders = map[Fault]uint64{
	"M1": 17, "M2": 1, "M4": 46, "M5": 845, "M6": 56, "M7": 362, "M8": 211, "M9": 0, "M10": 31, "M11": 20070,
	"M12": 2768, "M13": 15, "M14": 17, "M15": 74, "M16": 1867, "M17": 103, "M18": 95, "M20": 436, "M21": 16,
	"M22": 653, "M23": 73, "M24": 5, "M25": 51, "M26": 86, "M27": 49, "M28": 83, "M29": 2, "M30": 148, "M31": 1,
	"M32": 1, "M33": 4069, "M34": 51, "M36": 261, "M37": 82, "M38": 5, "M39": 218, "M40": 214, "M41": 11, "M42": 5,
	"M43": 5707, "M44": 373, "M45": 19, "M46": 134, "M47": 1648, "M48": 326, "M49": 2, "M50": 211, "M51": 96,
	"M52": 6, "M54": 2635, "M55": 204, "M56": 369, "M57": 2, "M58": 308, "M59": 694, "M60": 2356, "M61": 4882,
	"M62": 157, "M63": 344, "M64": 13, "M65": 6802, "M66": 18, "M67": 1819, "M68": 28, "M69": 3, "M70": 34,
	"M71": 264, "M72": 15, "M73": 2889,
}
