package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLongFlagsMayHaveOneDash(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ args, want []string }{
		"one dash":                        {[]string{"up", "-config", "f"}, []string{"up", "--config", "f"}},
		"one dash and a value":            {[]string{"up", "-config=f"}, []string{"up", "--config=f"}},
		"two dashes":                      {[]string{"up", "--config", "f"}, []string{"up", "--config", "f"}},
		"a short flag":                    {[]string{"up", "-c", "f"}, []string{"up", "-c", "f"}},
		"a negative number":               {[]string{"x", "-12"}, []string{"x", "-12"}},
		"standard input":                  {[]string{"x", "-"}, []string{"x", "-"}},
		"what stands behind two dashes":   {[]string{"x", "--", "-config"}, []string{"x", "--", "-config"}},
		"a value that begins with a dash": {[]string{"x", "--id=-config"}, []string{"x", "--id=-config"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(test.want, dashes(test.args)); d != "" {
				t.Errorf("arguments (-want +got):\n%s", d)
			}
		})
	}
}
