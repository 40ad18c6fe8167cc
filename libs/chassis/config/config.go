// Package config fills a struct of settings from a TOML file and then from the
// environment, and refuses what it does not know.
//
// A setting is an exported field with a `config:"name"` tag; a struct field is
// a section, and an embedded struct tagged `config:",inline"` shares its
// parent's section. Fields hold bool, string, int, int64, float64, []string or
// time-free structs of them: durations are integers whose unit is in the key.
// A setting that is absent keeps the value the struct came with, which is how
// defaults are declared.
//
// The environment overrides the file: TOLLGATE__SERVER__PORT=9000 sets
// server.port. Every variable under the prefix must name a setting.
//
// Nothing is repaired: an unknown or misspelt key, a wrong type or a number
// out of range is an error naming the key, the file and line or the variable,
// and the rule. All faults are reported together. Safe for concurrent use.
package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Prefix starts every environment variable that is a setting.
const Prefix = "TOLLGATE__"

// Source is where settings come from.
type Source struct {
	Name    string   // the file's name in messages
	File    []byte   // TOML; nil = no file
	Environ []string // "NAME=value" lines, like os.Environ
}

// A Validator reports every fault of a filled struct.
type Validator interface{ Validate() error }

// Load fills dst, a pointer to a struct, from src. When dst is a Validator it
// is asked last, and only if every setting could be read.
func Load(dst any, src Source) error {
	root := reflect.ValueOf(dst)
	if root.Kind() != reflect.Pointer || root.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("config: Load wants a pointer to a struct, not %T", dst)
	}
	settings := map[string]reflect.Value{}
	collect(root.Elem(), "", settings)
	var faults []error
	if src.File != nil {
		faults = append(faults, fromFile(settings, src)...)
	}
	faults = append(faults, fromEnviron(settings, src.Environ)...)
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	if v, ok := dst.(Validator); ok {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Keys lists every setting of the struct behind dst, dotted and sorted.
func Keys(dst any) []string {
	settings := map[string]reflect.Value{}
	collect(reflect.Indirect(reflect.ValueOf(dst)), "", settings)
	return sorted(settings)
}

func collect(v reflect.Value, section string, into map[string]reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		tag, tagged := field.Tag.Lookup("config")
		if !tagged || !field.IsExported() {
			continue
		}
		if tag == ",inline" {
			collect(v.Field(i), section, into)
			continue
		}
		key := tag
		if section != "" {
			key = section + "." + tag
		}
		if field.Type.Kind() == reflect.Struct {
			collect(v.Field(i), key, into)
			continue
		}
		into[key] = v.Field(i)
	}
}

func fromFile(settings map[string]reflect.Value, src Source) []error {
	var doc map[string]any
	if err := toml.Unmarshal(src.File, &doc); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, _ := at.Position()
			return []error{fmt.Errorf("%s:%d: not valid TOML: %w", src.Name, row, err)}
		}
		return []error{fmt.Errorf("%s: not valid TOML: %w", src.Name, err)}
	}
	given := map[string]any{}
	flatten(doc, "", settings, given)
	var faults []error
	for _, key := range sorted(given) {
		where := fmt.Sprintf("%s:%d", src.Name, line(src.File, key))
		target, known := settings[key]
		if !known {
			faults = append(faults, fmt.Errorf("%s: unknown key %q%s", where, key, nearest(key, settings)))
			continue
		}
		if err := set(target, given[key]); err != nil {
			faults = append(faults, fmt.Errorf("%s: %s: %w", where, key, err))
		}
	}
	return faults
}

// flatten turns nested tables into dotted keys. A table where a setting is
// expected stays a table, so that set can refuse its type.
func flatten(doc map[string]any, section string, settings map[string]reflect.Value, into map[string]any) {
	for name, value := range doc {
		key := name
		if section != "" {
			key = section + "." + name
		}
		table, isTable := value.(map[string]any)
		if _, isSetting := settings[key]; isTable && !isSetting {
			if len(table) == 0 && !hasSection(key, settings) {
				into[key] = value
			}
			flatten(table, key, settings, into)
			continue
		}
		into[key] = value
	}
}

func hasSection(name string, settings map[string]reflect.Value) bool {
	for key := range settings {
		if strings.HasPrefix(key, name+".") {
			return true
		}
	}
	return false
}

func fromEnviron(settings map[string]reflect.Value, environ []string) []error {
	var faults []error
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, Prefix) {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, Prefix), "__", "."))
		target, known := settings[key]
		if !known {
			faults = append(faults, fmt.Errorf("environment %s: unknown key %q%s", name, key, nearest(key, settings)))
			continue
		}
		if err := setText(target, text); err != nil {
			faults = append(faults, fmt.Errorf("environment %s: %s: %w", name, key, err))
		}
	}
	return faults
}

// set stores a TOML value without conversions between kinds.
func set(target reflect.Value, value any) error {
	switch v := value.(type) {
	case bool:
		if target.Kind() == reflect.Bool {
			target.SetBool(v)
			return nil
		}
	case string:
		if target.Kind() == reflect.String {
			target.SetString(v)
			return nil
		}
	case int64:
		switch target.Kind() {
		case reflect.Int, reflect.Int64:
			if target.OverflowInt(v) {
				return errors.New("is out of range")
			}
			target.SetInt(v)
			return nil
		case reflect.Float64:
			target.SetFloat(float64(v))
			return nil
		default:
		}
	case float64:
		if target.Kind() == reflect.Float64 {
			target.SetFloat(v)
			return nil
		}
	case []any:
		if target.Type() == reflect.TypeFor[[]string]() {
			list := make([]string, 0, len(v))
			for _, item := range v {
				text, ok := item.(string)
				if !ok {
					return errors.New("must be a list of strings")
				}
				list = append(list, text)
			}
			target.Set(reflect.ValueOf(list))
			return nil
		}
	}
	return mustBe(target)
}

// setText stores an environment variable's text.
func setText(target reflect.Value, text string) error {
	switch target.Kind() {
	case reflect.Bool:
		if text != "true" && text != "false" {
			return mustBe(target)
		}
		target.SetBool(text == "true")
		return nil
	case reflect.String:
		target.SetString(text)
		return nil
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, target.Type().Bits())
		if err != nil {
			return mustBe(target)
		}
		target.SetInt(n)
		return nil
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return mustBe(target)
		}
		target.SetFloat(f)
		return nil
	default:
	}
	if target.Type() == reflect.TypeFor[[]string]() {
		list := []string{}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
		target.Set(reflect.ValueOf(list))
		return nil
	}
	return mustBe(target)
}

func mustBe(target reflect.Value) error {
	switch target.Kind() {
	case reflect.Bool:
		return errors.New("must be true or false")
	case reflect.String:
		return errors.New("must be a string")
	case reflect.Int, reflect.Int64:
		return errors.New("must be an integer")
	case reflect.Float64:
		return errors.New("must be a number")
	default:
		return errors.New("must be a list of strings")
	}
}

// line finds the line of a dotted key in a TOML file of plain sections: good
// enough to point an editor at, and 1 when it is written in another way.
func line(file []byte, key string) int {
	section, name := "", key
	if cut := strings.LastIndexByte(key, '.'); cut >= 0 {
		section, name = key[:cut], key[cut+1:]
	}
	at, n := "", 0
	found := 1
	for text := range strings.SplitSeq(string(file), "\n") {
		n++
		text = strings.TrimSpace(text)
		if strings.HasPrefix(text, "[") {
			at = strings.Trim(strings.TrimRight(text, " \t"), "[] ")
			if at == section || at == key {
				found = n
			}
			continue
		}
		left, _, isPair := strings.Cut(text, "=")
		left = strings.Trim(strings.TrimSpace(left), `"'`)
		if isPair && (at == section && left == name || at == "" && left == key) {
			return n
		}
	}
	return found
}

// nearest suggests the setting that a misspelt key most likely means.
func nearest(key string, settings map[string]reflect.Value) string {
	best, bestAt := "", 4
	for _, known := range sorted(settings) {
		if d := distance(key, known); d < bestAt {
			best, bestAt = known, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance is the Levenshtein distance of two short texts.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		previous := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := previous
			if a[i] != b[j] {
				cost = 1 + min(previous, row[j], row[j+1])
			}
			previous, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
