package simulation

// finders are seeds that find faults. They are played first, since a search plays many thousands;
// where a step of the simulation has changed, it is made again, and says which seeds find them now.
var finders = map[Fault]uint64{
	"M1": 17, "M2": 1, "M4": 46, "M5": 845, "M6": 56, "M7": 362, "M8": 211, "M9": 0, "M10": 58, "M11": 20070,
	"M12": 2768, "M13": 51, "M14": 35, "M15": 10, "M16": 703, "M17": 201, "M18": 55, "M20": 436, "M21": 16,
	"M22": 1885, "M23": 58, "M24": 11, "M25": 17, "M26": 3, "M27": 47, "M28": 83, "M29": 2, "M30": 148, "M31": 1,
	"M32": 1, "M33": 6621, "M34": 51, "M36": 238, "M37": 76, "M38": 5, "M39": 168, "M40": 214, "M41": 3, "M42": 5,
	"M43": 4252, "M44": 373, "M45": 19, "M46": 53, "M47": 76, "M48": 326, "M49": 2, "M50": 211, "M51": 67,
	"M52": 6, "M54": 4940, "M55": 1648, "M56": 334, "M57": 2, "M58": 301, "M59": 2320, "M60": 2320, "M61": 2320,
	"M62": 157, "M63": 302, "M64": 13, "M65": 30702, "M66": 18, "M67": 1819, "M68": 28, "M69": 3, "M70": 34,
	"M71": 101, "M72": 14, "M73": 2889,
}
