package log

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"delenda/storage"
)

// Encode writes actions as the bytes of a commit, one per line.
func Encode(actions []Action) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i := range actions {
		if err := enc.Encode(&actions[i]); err != nil {
			return nil, fmt.Errorf("encode action %d: %w", i, err)
		}
	}
	return buf.Bytes(), nil
}

// PutCommit writes the commit of version v if no other has it. It returns
// storage.ErrExists when one has, perhaps this very call's after an unclear
// answer inside the store's client: read the commit back. After any other
// error the commit may or may not be there.
//
// commitInfo must be the first action. The caller has read version v-1.
func PutCommit(ctx context.Context, b storage.Bucket, v storage.Version, actions []Action) error {
	if err := checkCommit(actions); err != nil {
		return fmt.Errorf("commit version %d: %w", v, err)
	}
	p, err := Encode(actions)
	if err != nil {
		return fmt.Errorf("commit version %d: %w", v, err)
	}
	err = b.Put(ctx, CommitKey(v), bytes.NewReader(p), storage.PutOptions{IfAbsent: true, ContentType: "application/json"})
	if err != nil {
		return fmt.Errorf("commit version %d: %w", v, err)
	}
	return nil
}

// checkCommit holds the rules of one commit: commitInfo first, at most one add
// and one remove per path, at most one of everything that reconciles.
func checkCommit(actions []Action) error {
	if len(actions) == 0 || actions[0].CommitInfo == nil {
		return fmt.Errorf("encode: commitInfo is not the first action")
	}
	c := Commit{}
	adds, removes := map[string]string{}, map[string]string{}
	for i := range actions {
		a := &actions[i]
		if err := a.validate(); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		if err := c.fold(int64(i), a); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		var seen map[string]string
		var path string
		switch {
		case a.Add != nil:
			seen, path = adds, a.Add.Path
		case a.Remove != nil:
			seen, path = removes, a.Remove.Path
		default:
			continue
		}
		k, err := keyOf(path, a.deletionVector())
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		if _, ok := seen[k.path]; ok {
			return fmt.Errorf("encode: a path twice in one commit")
		}
		seen[k.path] = k.dv
		if other, ok := map[bool]map[string]string{true: removes, false: adds}[a.Add != nil][k.path]; ok && other == k.dv {
			return fmt.Errorf("encode: a file both added and removed in one commit")
		}
	}
	return nil
}
