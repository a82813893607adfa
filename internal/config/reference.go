package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Reference returns the documentation of every setting as Markdown, made from
// the same types and defaults that Read uses.
func Reference() string {
	var b strings.Builder
	b.WriteString("| key | default | meaning |\n|---|---|---|\n")
	reference(&b, reflect.ValueOf(Default()), "")
	return b.String()
}

func reference(b *strings.Builder, v reflect.Value, path string) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		tag, tagged := field.Tag.Lookup("yaml")
		switch {
		case !tagged:
			continue
		case tag == ",inline":
			reference(b, v.Field(i), path)
			continue
		}
		key, def := join(path, tag), ""
		if field.Type.Kind() == reflect.Slice {
			key += "[]"
		}
		if f := v.Field(i); !f.IsZero() && f.Kind() != reflect.Struct {
			def = fmt.Sprint(f.Interface())
			if d, ok := f.Interface().(time.Duration); ok {
				def = strings.TrimSuffix(d.String(), "m0s")
				if def != d.String() {
					def += "m"
				}
			}
			def = "`" + def + "`"
		}
		doc := field.Tag.Get("doc")
		if env, ok := field.Tag.Lookup("env"); ok {
			doc += " Environment: `" + env + "`."
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", key, def, doc)
		switch t := field.Type; {
		case t.Kind() == reflect.Struct:
			reference(b, v.Field(i), key)
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			reference(b, reflect.New(t.Elem()).Elem(), key)
		}
	}
}
