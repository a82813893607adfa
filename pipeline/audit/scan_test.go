package audit_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"delenda/pipeline/audit"
	"delenda/storage"
)

const needle = `Zoë "zq" <person@example.net>`

func scanner(t testing.TB, identities ...string) *audit.Scanner {
	t.Helper()
	var secrets []storage.Secret
	for _, id := range identities {
		secrets = append(secrets, storage.NewSecret(id))
	}
	s, err := audit.NewScanner(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func Test_an_identity_is_found_in_every_form(t *testing.T) {
	t.Parallel()
	quoted, err := json.Marshal(needle)
	if err != nil {
		t.Fatal(err)
	}
	zipped := func(p []byte) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(p)
		_ = w.Close()
		return b.Bytes()
	}
	zstandard := func(p []byte) []byte {
		w, _ := zstd.NewWriter(nil)
		return w.EncodeAll(p, nil)
	}
	around := func(p []byte) []byte { return append(append([]byte("before "), p...), " after"...) }
	for form, p := range map[string][]byte{
		"raw":            []byte(needle),
		"lower case":     []byte(strings.ToLower(needle)),
		"upper case":     []byte(strings.ToUpper(needle)),
		"hex":            []byte(hex.EncodeToString([]byte(needle))),
		"upper hex":      []byte(strings.ToUpper(hex.EncodeToString([]byte(needle)))),
		"base64":         []byte(base64.StdEncoding.EncodeToString([]byte(needle))),
		"base64 after 1": []byte(base64.StdEncoding.EncodeToString([]byte("x" + needle + "yy"))),
		"base64 after 2": []byte(base64.URLEncoding.EncodeToString([]byte("xx" + needle + "y"))),
		"JSON":           quoted,
		"JSON in base64": []byte(base64.StdEncoding.EncodeToString([]byte(`{"v":"` + needle + `"}`))),
		"URL":            []byte(url.QueryEscape(needle)),
		"gzip":           zipped([]byte(strings.Repeat("filler ", 99) + needle)),
		"zstd":           zstandard([]byte(strings.Repeat("filler ", 99) + needle)),
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := scanner(t, "nobody-at-all", needle)
			if err := s.Bytes(t.Context(), "here", around(p)); err != nil {
				t.Error(err)
			}
			if len(s.Found()) == 0 {
				t.Fatal("not found")
			}
			for _, f := range s.Found() {
				if f.Needle != 1 || !strings.HasPrefix(f.Where, "here") || strings.Contains(f.String(), "person") {
					t.Errorf("%v", f)
				}
			}
		})
	}
}

func Test_an_identity_is_found_in_a_parquet_column_and_in_a_name(t *testing.T) {
	t.Parallel()
	b := load(t, filepath.Join(testdata, "spark-dv-name"))
	s := scanner(t, "person01@example.org")
	if err := s.Bucket(t.Context(), "table", b, func(key string) bool { return strings.HasPrefix(key, "_delta_log/") }); err != nil {
		t.Fatal(err)
	}
	if len(s.Found()) == 0 || s.Searched() == 0 {
		t.Errorf("not found in %d bytes", s.Searched())
	}
	s = scanner(t, "person01@example.org")
	if err := s.Dir(t.Context(), "dir", fstest.MapFS{"a/person01@example.org.log": {Data: []byte("x")}, "b": {Data: []byte("y")}}, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.Found()) != 1 {
		t.Errorf("%v", s.Found())
	}
}

func Test_a_file_that_cannot_be_searched_is_never_clean(t *testing.T) {
	t.Parallel()
	b := load(t, filepath.Join(testdata, "spark-dv-name"))
	var p []byte
	for info, err := range b.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(info.Key, ".parquet") && !strings.HasPrefix(info.Key, "_delta_log/") {
			p, err = storage.ReadObject(t.Context(), b, info.Key, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := scanner(t, "nobody-at-all").Bytes(t.Context(), "here", p); err != nil {
		t.Fatal(err)
	}
	page := bytes.Clone(p)
	for i := range page[4:200] {
		page[4+i] ^= 0x55
	}
	footer := bytes.Clone(p)
	footer[len(p)-5] ^= 0xff
	encrypted := append(bytes.Clone(p[:len(p)-4]), "PARE"...)
	large := func() []byte { // more than is unpacked
		w, _ := zstd.NewWriter(nil)
		return w.EncodeAll(make([]byte, 65<<20), nil)
	}()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(make([]byte, 65<<20))
	_ = w.Close()
	for name, damaged := range map[string][]byte{
		"a page": page, "the footer": footer, "torn": p[:len(p)-20], "headless": p[1:], "encrypted": encrypted,
		"large, zstd": large, "large, gzip": zipped.Bytes(), "frames": bytes.Repeat([]byte{0x1f, 0x8b, 0x08}, 10_001),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := scanner(t, "nobody-at-all").Bytes(t.Context(), "here", damaged); err == nil {
				t.Error("Bytes: no error")
			}
			s := scanner(t, "person01@example.org")
			files := fstest.MapFS{"a": {Data: damaged}, "b": {Data: []byte("person01@example.org")}}
			if err := s.Dir(t.Context(), "dir", files, nil); err == nil || !strings.Contains(err.Error(), "dir/a") {
				t.Errorf("Dir: got %v", err)
			}
			if len(s.Found()) == 0 {
				t.Error("what comes after was not searched")
			}
		})
	}
}

func Test_nothing_is_found_where_nothing_is(t *testing.T) {
	t.Parallel()
	s := scanner(t, "a person that is nowhere")
	if err := s.Bucket(t.Context(), "table", load(t, testdata), nil); err != nil {
		t.Fatal(err)
	}
	if len(s.Found()) != 0 {
		t.Errorf("%v", s.Found())
	}
	if _, err := audit.NewScanner(storage.NewSecret("short")); err == nil {
		t.Error("a needle that is found everywhere is accepted")
	}
}
