package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = 4 << 20

// Read reads, completes from the environment, and validates the file at path
// for a role. A returned *Error lists every problem.
func Read(path string, role Role, env func(string) (string, bool)) (*Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("read configuration: %s is larger than %d bytes", path, maxFileBytes)
	}
	src, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, src, role, env)
}

// Parse is Read of bytes that are at hand; file is the name for messages, and
// its directory the start of relative paths.
func Parse(file string, src []byte, role Role, env func(string) (string, bool)) (*Config, error) {
	c := Default()
	c.at = map[string]position{}
	d := decoder{file: file, at: c.at}
	d.document(src, reflect.ValueOf(&c).Elem())
	d.environment(reflect.ValueOf(&c).Elem(), "", env)
	if err := d.err(); err != nil {
		return nil, err // checking half a configuration reports what is not wrong
	}
	c.resolve(filepath.Dir(file))
	if err := c.validate(file, role); err != nil {
		return nil, err
	}
	return &c, nil
}

type decoder struct {
	problems
	file string
	at   map[string]position
}

// yamlLine finds the line that a syntax error of the YAML library names.
var yamlLine = regexp.MustCompile(`line (\d+): (.*)`)

func (d *decoder) document(src []byte, into reflect.Value) {
	dec := yaml.NewDecoder(strings.NewReader(string(src)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		at, reason := position{d.file, 0}, "not YAML"
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			at.line, _ = strconv.Atoi(m[1])
			reason = m[2]
		} else if len(strings.TrimSpace(string(src))) == 0 {
			reason = "the file is empty"
		}
		d.add(at, "", "%s", reason)
		return
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		d.add(position{d.file, second.Line}, "", "a second YAML document")
	}
	d.value(doc.Content[0], "", into)
}

// fields returns the settings of a struct by key, inlined ones included.
func fields(v reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		tag, tagged := v.Type().Field(i).Tag.Lookup("yaml")
		switch {
		case !tagged:
		case tag == ",inline":
			maps.Copy(out, fields(v.Field(i)))
		default:
			out[tag] = v.Field(i)
		}
	}
	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// value decodes n into v. A problem leaves v as it was.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value) {
	at := position{d.file, n.Line}
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		d.add(at, path, "anchors and aliases are not supported")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		known := fields(v)
		d.mapping(n, path, "a list of keys", func(key string, kn, vn *yaml.Node) {
			field, ok := known[key]
			if !ok {
				d.add(position{d.file, kn.Line}, join(path, key), "unknown key; known here: %s",
					strings.Join(slices.Sorted(maps.Keys(known)), ", "))
				return
			}
			d.at[join(path, key)] = position{d.file, kn.Line}
			d.value(vn, join(path, key), field)
		})
	case reflect.Map:
		out := map[string]string{}
		d.mapping(n, path, "a list of \"key: value\"", func(key string, kn, vn *yaml.Node) {
			if text, ok := d.scalar(vn, join(path, key), "a text"); ok {
				out[key] = text
				d.at[join(path, key)] = position{d.file, kn.Line}
			}
		})
		v.Set(reflect.ValueOf(out))
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.add(at, path, "must be a list (lines that begin with \"- \")")
			return
		}
		out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			key := fmt.Sprintf("%s[%d]", path, i)
			d.at[key] = position{d.file, item.Line}
			d.value(item, key, out.Index(i))
		}
		v.Set(out)
	default:
		d.leaf(n, path, v)
	}
}

// mapping calls each for every key of n once.
func (d *decoder) mapping(n *yaml.Node, path, want string, each func(key string, kn, vn *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.add(position{d.file, n.Line}, path, "must be %s", want)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		kn, vn := n.Content[i], n.Content[i+1]
		if kn.Kind != yaml.ScalarNode {
			d.add(position{d.file, kn.Line}, path, "a key must be a word")
			continue
		}
		if seen[kn.Value] {
			d.add(position{d.file, kn.Line}, join(path, kn.Value), "stands here a second time")
			continue
		}
		seen[kn.Value] = true
		each(kn.Value, kn, vn)
	}
}

// scalar returns the text of a scalar that is not null.
func (d *decoder) scalar(n *yaml.Node, path, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Anchor != "" {
		d.add(position{d.file, n.Line}, path, "must be %s", want)
		return "", false
	}
	if n.Tag == "!!null" {
		d.add(position{d.file, n.Line}, path, "has no value")
		return "", false
	}
	return n.Value, true
}

// leaf decodes a scalar.
func (d *decoder) leaf(n *yaml.Node, path string, v reflect.Value) {
	want := wanted(v)
	text, ok := d.scalar(n, path, want)
	if !ok {
		return
	}
	if v.Kind() == reflect.Bool && n.Tag != "!!bool" || setText(v, text) != nil {
		d.add(position{d.file, n.Line}, path, "must be %s", want)
	}
}

// wanted describes what a setting takes.
func wanted(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Duration:
		return "a duration such as 15m or 1s"
	case bool:
		return "true or false"
	case int, int64:
		return "a whole number"
	case float64:
		return "a number"
	}
	return "a text"
}

var errShape = errors.New("wrong shape")

// setText sets a scalar setting from its text.
func setText(v reflect.Value, text string) error {
	switch v.Interface().(type) {
	case time.Duration:
		p, err := time.ParseDuration(text)
		if err != nil {
			return errShape
		}
		v.SetInt(int64(p))
	case bool:
		p, err := strconv.ParseBool(text)
		if err != nil {
			return errShape
		}
		v.SetBool(p)
	case int, int64:
		p, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil || v.OverflowInt(p) {
			return errShape
		}
		v.SetInt(p)
	case float64:
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(p) || math.IsInf(p, 0) {
			return errShape
		}
		v.SetFloat(p)
	case string:
		v.SetString(text)
	default:
		panic("config: internal error: a setting of type " + v.Type().String())
	}
	return nil
}

// environment sets what the environment names; it wins over the file.
func (d *decoder) environment(v reflect.Value, path string, env func(string) (string, bool)) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		key := join(path, field.Tag.Get("yaml"))
		if name, ok := field.Tag.Lookup("env"); ok {
			if text, set := env(name); set && text != "" {
				d.at[key] = position{"environment " + name, 0}
				if setText(v.Field(i), text) != nil {
					d.add(d.at[key], key, "must be %s", wanted(v.Field(i)))
				}
			}
		} else if v.Field(i).Kind() == reflect.Struct && field.IsExported() {
			d.environment(v.Field(i), key, env)
		}
	}
}
