package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"delenda/events"
	"delenda/pipeline"
)

// Consumer takes requests from delenda.intake.{source} and answers each on
// delenda.outcome.{source} before it acknowledges.
type Consumer struct {
	Intake  *Intake
	Keys    *Keys
	Fetch   pipeline.Fetch
	Publish pipeline.Publish
	Sources []string // others are refused
	// Plain also takes bodies that are not encrypted. They then lie in the
	// stream in clear until they are acknowledged.
	Plain bool
	// MaxDeliveries is after how many deliveries a message is given up, with a
	// dead letter; zero is 20. It is looked at before the message. Those that
	// this process gave back itself, for trouble that passes, count a fiftieth:
	// they kill nobody.
	MaxDeliveries int
	Logger        *slog.Logger // none if nil

	mu    sync.Mutex
	given map[uint64]int // deliveries given back, by sequence, of messages that are not done
}

// givenBack is how many deliveries that were given back count as one.
const givenBack = 50

// tooOften counts deliveries.
func (c *Consumer) tooOften(m pipeline.Message) bool {
	limit := c.MaxDeliveries
	if limit == 0 {
		limit = 20
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	given := min(c.given[m.Sequence], m.Deliveries)
	return m.Deliveries-given+given/givenBack > limit
}

// note remembers that a message was given back, or forgets it once it is done.
func (c *Consumer) note(m pipeline.Message, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case done:
		delete(c.given, m.Sequence)
	case c.given == nil:
		c.given = map[uint64]int{m.Sequence: 1}
	default:
		c.given[m.Sequence]++
	}
}

const (
	consumerBatch    = 64
	consumerParallel = 16
	consumerTimeout  = 25 * time.Second // of what was fetched at a time; less than the consumer's AckWait and a drain
)

// Run works until ctx is done.
func (c *Consumer) Run(ctx context.Context) error {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(250*time.Millisecond),
		backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		err := c.step(ctx)
		if err == nil || ctx.Err() != nil {
			pause.Reset()
			continue
		}
		c.Logger.LogAttrs(ctx, slog.LevelWarn, "intake paused", slog.Any("error", err))
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

func (c *Consumer) step(ctx context.Context) error {
	messages, err := c.Fetch(ctx, 1, 5*time.Second)
	if err != nil {
		return err
	}
	if len(messages) > 0 {
		more, err := c.Fetch(ctx, consumerBatch, 0)
		if err != nil {
			c.Logger.LogAttrs(ctx, slog.LevelDebug, "fetch failed", slog.Any("error", err))
		}
		messages = append(messages, more...)
	}
	// What is fetched is finished, also when ctx ends, but not for ever: the
	// messages come again by themselves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), consumerTimeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(consumerParallel)
	for _, m := range messages {
		g.Go(func() error {
			err := c.handle(ctx, m)
			if err != nil {
				_ = m.Nak(ctx, retryDelay(m.Deliveries))
			}
			c.note(m, err == nil)
			return err
		})
	}
	return g.Wait()
}

func retryDelay(deliveries int) time.Duration {
	return min(time.Second<<min(max(deliveries-1, 0), 6), time.Minute)
}

// handle answers one message. An error means that it must come again.
func (c *Consumer) handle(ctx context.Context, m pipeline.Message) error {
	source := strings.TrimPrefix(m.Subject, events.IntakeSubject(""))
	if !c.knows(source) {
		// Nobody to answer: outcome subjects exist for configured sources only.
		return c.giveUp(ctx, m, "unknown_source")
	}
	if c.tooOften(m) {
		p := problem(http.StatusInternalServerError, "gave_up", "", "the message was given up")
		if err := c.answer(ctx, source, m, nil, p); err != nil {
			return err
		}
		return c.giveUp(ctx, m, "too_many_deliveries")
	}
	rec, err := c.accept(ctx, source, m)
	p := (*Problem)(nil)
	if err != nil && !errors.As(err, &p) {
		return fmt.Errorf("handle message %d: %w", m.Sequence, err)
	}
	if err := c.answer(ctx, source, m, rec, p); err != nil {
		return err
	}
	return m.Ack(ctx)
}

func (c *Consumer) knows(source string) bool {
	for _, s := range c.Sources {
		if s == source {
			return true
		}
	}
	return false
}

func (c *Consumer) accept(ctx context.Context, source string, m pipeline.Message) (*pipeline.Record, error) {
	if len(m.Data) > 2*MaxBody {
		return nil, problem(http.StatusRequestEntityTooLarge, "too_large", "", "the message has more than %d bytes", 2*MaxBody)
	}
	body := m.Data
	switch {
	case isJWE(body):
		var p *Problem
		if body, p = c.Keys.open(body); p != nil {
			return nil, p
		}
	case !c.Plain:
		return nil, problem(http.StatusUnsupportedMediaType, "not_encrypted", "", "only JWE to a published key is taken")
	case len(body) > MaxBody:
		return nil, problem(http.StatusRequestEntityTooLarge, "too_large", "", "the body has more than %d bytes", MaxBody)
	}
	return c.Intake.Accept(ctx, source, body)
}

func (c *Consumer) answer(ctx context.Context, source string, m pipeline.Message, rec *pipeline.Record, p *Problem) error {
	a := events.IntakeAnswered{IntakeSequence: m.Sequence, Status: http.StatusAccepted}
	if u, err := uuid.Parse(m.ID); err == nil && strings.EqualFold(u.String(), m.ID) {
		a.MessageID = u.String()
	}
	if p != nil {
		a.Status, a.Code, a.Field = p.Status, p.Code, p.Field
	} else {
		a.Accepted, a.Request = true, string(rec.ID)
	}
	store := c.Intake.store
	e, err := events.New(store.Source("ingest"), events.TypeIntakeAnswered, events.OutcomeSubject(source),
		fmt.Sprintf("%d/%s/%d/%s", m.Sequence, a.Request, a.Status, a.Code), store.Now(), a)
	if err != nil {
		return err
	}
	if err := c.Publish(ctx, e); err != nil {
		return fmt.Errorf("answer message %d: %w", m.Sequence, err)
	}
	if f := c.Intake.o.Metrics.Answered; f != nil {
		f(source, a.Status, a.Code)
	}
	return nil
}

// giveUp ends a message with a dead letter, which holds the message only if
// that is ciphertext.
func (c *Consumer) giveUp(ctx context.Context, m pipeline.Message, code string) error {
	store := c.Intake.store
	d := events.DeadLetter{
		Subject: m.Subject, Stream: m.Stream, Sequence: m.Sequence,
		Code: code, Deliveries: m.Deliveries, At: store.Now(),
	}
	if len(m.Data) <= 2*MaxBody {
		d.Payload = sealedOnly(m.Data)
	}
	e, err := events.New(store.Source("ingest"), events.TypeDeadLetter, events.DeadSubject("intake"),
		fmt.Sprintf("%s/%d/%s", m.Stream, m.Sequence, code), store.Now(), d)
	if err != nil {
		return err
	}
	if err := c.Publish(ctx, e); err != nil {
		return fmt.Errorf("give up message %d: %w", m.Sequence, err)
	}
	return m.Term(ctx, code)
}
