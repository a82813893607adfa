package intake_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"delenda/events"
	"delenda/events/bus"
	"delenda/pipeline/intake"
)

// Every body that is taken must fit the streams, whatever its characters cost
// in other encodings; one more than may be taken is refused for its size.
func Test_the_largest_body_fits_the_messages_that_are_made_of_it(t *testing.T) {
	t.Parallel()
	for name, char := range map[string]string{
		"what HTML escapes":      "<",
		"what JavaScript breaks": "\u2028",
		"plain":                  "x",
		"two bytes":              "é",
		"escapes":                `\u0001`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			decoded := len(char)
			if strings.HasPrefix(char, `\`) {
				decoded = 1
			}
			text := largest(char, decoded)
			if n := len(text); n > intake.MaxBody || n < intake.MaxBody/2 {
				t.Fatalf("a body of %d bytes", n)
			}
			rec, err := s.in.Accept(t.Context(), "crm", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			e, err := s.store.ItemEvent(rec, "orders", "")
			if err != nil {
				t.Fatal(err)
			}
			item, err := e.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if len(item) > bus.MaxItemBytes {
				t.Errorf("the item has %d bytes", len(item))
			}
			dead, err := events.New(s.store.Source("deleter"), events.TypeDeadLetter, events.DeadSubject("requests"), "k",
				s.store.Now(), events.DeadLetter{Payload: item})
			if err != nil {
				t.Fatal(err)
			}
			letter, err := dead.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if len(letter) > bus.MinPayload {
				t.Errorf("the dead letter has %d bytes", len(letter))
			}
			identities, err := s.store.Unseal(context.Background(), rec)
			if err != nil || len(identities) == 0 || len(identities[0].Value.Reveal()) != 4096/decoded*decoded {
				t.Errorf("%d identities, %v", len(identities), err)
			}
		})
	}
}

// largest returns a body with as many full values as fit.
func largest(char string, decoded int) string {
	value := strings.Repeat(char, 4096/decoded)
	head, tail := `{"idempotency_key":"k","identities":[`, `]}`
	var list []string
	size := len(head) + len(tail)
	for len(list) < 100 {
		one := fmt.Sprintf(`{"type":"email","value":"%s"}`, value)
		if size += len(one) + 1; size > intake.MaxBody {
			break
		}
		list = append(list, one)
	}
	return head + strings.Join(list, ",") + tail
}
