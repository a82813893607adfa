package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/pipeline"
)

const (
	answerBytes = 1 << 20
	pollEvery   = 250 * time.Millisecond
)

type eraseCmd struct {
	configFlag
	jsonFlag
	Identity   []string      `name:"identity" short:"i" sep:"none" placeholder:"TYPE=VALUE" help:"Whom to erase. TYPE=- reads the value from standard input, so that it is not in the shell's history. May be given several times."`
	Table      []string      `name:"table" short:"t" sep:"none" placeholder:"NAME" help:"From which tables; all that map the type if not given."`
	Key        string        `name:"key" placeholder:"KEY" help:"Idempotency key: the same key and request again is the same request. Made up if not given."`
	Regulation string        `name:"regulation" default:"gdpr" help:"gdpr, uk_gdpr, ccpa, lgpd or other."`
	URL        string        `name:"url" placeholder:"URL" help:"Of ingest; from the configuration if not given."`
	TokenFile  string        `name:"token-file" placeholder:"FILE" help:"File with the bearer token of a source; otherwise the environment's DELENDA_TOKEN."`
	Wait       time.Duration `name:"wait" placeholder:"DURATION" help:"Wait so long for the rows to be hidden, such as 1m."`
}

func (*eraseCmd) Help() string {
	return `Examples:
  export DELENDA_TOKEN=...            # a token whose SHA-256 stands in ingest.sources
  delenda erase -config delenda.yaml --identity customer_id=4711 --wait 1m
  printf %s erika@example.org | delenda erase -config delenda.yaml --identity email=-`
}

// Run runs the command.
func (c *eraseCmd) Run(ctx context.Context, w *world) error {
	url, err := c.ingestURL(w)
	if err != nil {
		return err
	}
	token, err := c.token(w)
	if err != nil {
		return err
	}
	body, err := c.body(w)
	if err != nil {
		return err
	}
	var accepted struct {
		ID string `json:"id"`
	}
	raw, err := call(ctx, http.MethodPost, url+"/v1/erasures", token, body, http.StatusAccepted, &accepted)
	if err != nil {
		return err
	}
	if c.Wait <= 0 {
		if c.JSON {
			_, err := w.Stdout.Write(raw)
			return err
		}
		say(w.Stdout, "accepted: request %s", accepted.ID)
		return nil
	}
	return c.wait(ctx, w, url, token, accepted.ID)
}

func (c *eraseCmd) ingestURL(w *world) (string, error) {
	if c.URL != "" {
		return strings.TrimSuffix(c.URL, "/"), nil
	}
	conf, err := c.read(w, config.RoleOperator)
	if err != nil {
		return "", err
	}
	if conf.Ingest.TLS.Cert != "" {
		return "https://" + conf.Ingest.Listen, nil
	}
	return "http://" + conf.Ingest.Listen, nil
}

func (c *eraseCmd) token(w *world) (string, error) {
	token, _ := w.Env("DELENDA_TOKEN")
	if c.TokenFile != "" {
		text, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if token == "" {
		return "", daemon.Usage(errors.New("no token: set DELENDA_TOKEN, or add --token-file FILE"))
	}
	return token, nil
}

// body makes the request. Identities are kept out of errors.
func (c *eraseCmd) body(w *world) ([]byte, error) {
	type identity struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	var identities []identity
	for i, text := range c.Identity {
		typ, value, ok := strings.Cut(text, "=")
		if !ok || typ == "" || value == "" {
			return nil, daemon.Usage(fmt.Errorf("--identity number %d is not TYPE=VALUE", i+1))
		}
		if value == "-" {
			line, err := bufio.NewReader(io.LimitReader(w.Stdin, answerBytes)).ReadString('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("read identity from standard input: %w", err)
			}
			value = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		}
		identities = append(identities, identity{typ, value})
	}
	if len(identities) == 0 {
		return nil, daemon.Usage(errors.New("whom? add --identity TYPE=VALUE"))
	}
	key := c.Key
	if key == "" {
		key = rand.Text()
	}
	request := map[string]any{"idempotency_key": key, "regulation": c.Regulation, "identities": identities}
	if len(c.Table) > 0 {
		request["tables"] = c.Table
	}
	return json.Marshal(request)
}

// wait asks for the state until every table is hidden or waits for a person, or
// the time is over.
func (c *eraseCmd) wait(ctx context.Context, w *world, url, token, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		var st pipeline.Status
		raw, err := call(ctx, http.MethodGet, url+"/v1/erasures/"+id, token, nil, http.StatusOK, &st)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && !slices.ContainsFunc(st.Tables, func(t pipeline.TableStatus) bool { return t.State == pipeline.Received }) {
			if c.JSON {
				_, err = w.Stdout.Write(raw)
			} else {
				printStatus(w, &st)
			}
			if st.State != pipeline.Hidden {
				return errors.Join(err, failed())
			}
			return err
		}
		select {
		case <-ctx.Done():
			return next(fmt.Errorf("request %s is accepted, and its rows are not hidden yet", id), "delenda status %s", id)
		case <-tick.C:
		}
	}
}

// call makes one HTTP call to ingest and decodes its answer.
func call(ctx context.Context, method, url, token string, body []byte, want int, into any) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("call ingest: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, next(fmt.Errorf("call ingest: %w", err), "is it running? the address is ingest.listen, or --url")
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	if err != nil {
		return nil, fmt.Errorf("call ingest: %w", err)
	}
	if resp.StatusCode != want {
		var problem struct {
			Title, Detail, Code, Field string
		}
		_ = json.Unmarshal(raw, &problem)
		err := fmt.Errorf("ingest answers %s: %s", resp.Status, strings.Join(strings.Fields(problem.Field+" "+problem.Detail+" ("+problem.Code+")"), " "))
		if resp.StatusCode == http.StatusUnauthorized {
			return nil, next(err, "is the token's SHA-256 in ingest.sources? printf %%s \"$DELENDA_TOKEN\" | sha256sum")
		}
		return nil, err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("call ingest: the answer is not understood: %w", err)
	}
	return raw, nil
}
