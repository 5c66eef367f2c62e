package plainjson

// maxDepth is how deep encoding/json lets objects and lists lie in each other.
const maxDepth = 10000

// Valid reports whether text is one JSON value, exactly as [json.Valid] does. That
// looks at each byte through a function pointer; this takes a fifth of the time, and
// every message of the node socket is looked at once at either end.
func Valid(text []byte) bool {
	end := validValue(text, skipSpace(text, 0), 0)
	return end > 0 && skipSpace(text, end) == len(text)
}

// Deeper reports whether more than so many objects and lists of the valid text lie in each
// other.
func Deeper(text []byte, than int) bool {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end := skipString(text, i)
			if end == 0 {
				return false
			}
			i = end - 1
		case '{', '[':
			if depth++; depth > than {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// validValue returns the index after the value that begins at i and lies in so many
// objects and lists, 0 if there is none.
func validValue(text []byte, i, depth int) int {
	if i >= len(text) {
		return 0
	}
	switch c := text[i]; c {
	case '"':
		return validString(text, i)
	case '{':
		return validObject(text, i, depth+1)
	case '[':
		return validList(text, i, depth+1)
	case 't':
		return validWord(text, i, "true")
	case 'f':
		return validWord(text, i, "false")
	case 'n':
		return validWord(text, i, "null")
	default:
		return validNumber(text, i)
	}
}

// validObject does what validValue does, for the object that begins at i. depth is how many
// objects and lists lie in each other there.
func validObject(text []byte, i, depth int) int {
	if depth > maxDepth {
		return 0
	}
	if i = skipSpace(text, i+1); i < len(text) && text[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(text) || text[i] != '"' {
			return 0
		}
		if i = validString(text, i); i == 0 {
			return 0
		}
		if i = skipSpace(text, i); i >= len(text) || text[i] != ':' {
			return 0
		}
		if i = validValue(text, skipSpace(text, i+1), depth); i == 0 {
			return 0
		}
		if i = skipSpace(text, i); i >= len(text) {
			return 0
		}
		switch text[i] {
		case '}':
			return i + 1
		case ',':
			i = skipSpace(text, i+1)
		default:
			return 0
		}
	}
}

// validList does what validObject does, for a list.
func validList(text []byte, i, depth int) int {
	if depth > maxDepth {
		return 0
	}
	if i = skipSpace(text, i+1); i < len(text) && text[i] == ']' {
		return i + 1
	}
	for {
		if i = validValue(text, i, depth); i == 0 {
			return 0
		}
		if i = skipSpace(text, i); i >= len(text) {
			return 0
		}
		switch text[i] {
		case ']':
			return i + 1
		case ',':
			i = skipSpace(text, i+1)
		default:
			return 0
		}
	}
}

// validString is validValue for the string that begins at i. As in encoding/json, it
// need not be UTF-8.
func validString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return 0
		case c == '\\':
			if i = validEscape(text, i+1); i == 0 {
				return 0
			}
		}
	}
	return 0
}

// validEscape returns the index of the last byte of the escape whose backslash stands
// before i, 0 if it is none.
func validEscape(text []byte, i int) int {
	if i >= len(text) {
		return 0
	}
	switch text[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i
	case 'u':
	default:
		return 0
	}
	last := i + 4
	if last >= len(text) {
		return 0
	}
	for _, c := range text[i+1 : last+1] {
		if !isDigit(c) && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return 0
		}
	}
	return last
}

// validWord is validValue for a word.
func validWord(text []byte, i int, word string) int {
	end := i + len(word)
	if end > len(text) || string(text[i:end]) != word {
		return 0
	}
	return end
}

// validNumber is validValue for a number: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func validNumber(text []byte, i int) int {
	if text[i] == '-' {
		i++
	}
	end := skipDigits(text, i)
	if end == i || text[i] == '0' && end > i+1 {
		return 0
	}
	if end < len(text) && text[end] == '.' {
		whole := end + 1
		if end = skipDigits(text, whole); end == whole {
			return 0
		}
	}
	if end < len(text) && (text[end] == 'e' || text[end] == 'E') {
		exponent := end + 1
		if exponent < len(text) && (text[exponent] == '+' || text[exponent] == '-') {
			exponent++
		}
		if end = skipDigits(text, exponent); end == exponent {
			return 0
		}
	}
	return end
}

func skipDigits(text []byte, i int) int {
	for i < len(text) && isDigit(text[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
