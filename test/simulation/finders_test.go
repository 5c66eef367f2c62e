package simulation

// finders are seeds that find faults. They are played first, since a search plays many thousands;
// where a step of the simulation has changed, it is made again, and says which seeds find them now.
var finders = map[Fault]uint64{
	"M1": 41, "M2": 1, "M4": 8, "M5": 440, "M6": 115, "M7": 222, "M8": 97, "M9": 0,
	"M10": 58, "M11": 4142, "M12": 536, "M13": 51, "M14": 35, "M15": 10, "M16": 703, "M17": 201, "M18": 55, "M20": 105,
	"M21": 134, "M22": 1885, "M23": 58, "M24": 11, "M25": 17, "M26": 3, "M27": 47, "M28": 17, "M29": 0, "M30": 50,
	"M31": 1, "M32": 3, "M33": 6621, "M34": 51, "M36": 238, "M37": 76, "M38": 5, "M39": 168, "M40": 200,
	"M41": 3, "M42": 7, "M43": 4252, "M44": 373, "M45": 9, "M46": 53, "M47": 76, "M48": 649, "M49": 222, "M50": 97,
	"M51": 67, "M52": 1, "M54": 4940, "M55": 1648, "M56": 334, "M57": 171, "M58": 301, "M59": 2320, "M60": 2320,
	"M61": 2320, "M62": 157, "M63": 302, "M64": 13, "M65": 30702, "M66": 18, "M67": 827, "M68": 21, "M69": 43, "M70": 3, "M71": 101, "M72": 14,
}
