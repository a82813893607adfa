package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"delenda/events"
)

// Defaults of Topology.
const (
	DefaultAckWait       = 30 * time.Second
	DefaultMaxAckPending = 20000
	DefaultKeep          = 7 * 24 * time.Hour

	// DefaultPinTTL is how long a table stays with a replica that has stopped
	// fetching from it, before another replica gets its work items.
	DefaultPinTTL = 10 * time.Second

	// MaxIntakeBytes and MaxItemBytes bound one message of the intake and of
	// the requests stream: a body of 256 KiB as JWE, and its identities sealed
	// in an event.
	MaxIntakeBytes = 384 << 10
	MaxItemBytes   = 512 << 10

	// IntakeDurable is the durable consumer of the intake stream.
	IntakeDurable = "ingest"

	// MinPayload is what the server must take in one message (max_payload; its
	// default is just that): the dead letter of the largest item holds the item,
	// base64 in JSON.
	MinPayload = 1 << 20

	pinGroup   = "table"
	duplicates = 2 * time.Minute
)

// DeleterDurable returns the durable consumer of a table's work items.
func DeleterDurable(table string) string { return "deleter-" + table }

// Topology is what Declare creates. The zero value with Tables works.
type Topology struct {
	Tables   []string // a durable consumer of the requests stream for each
	Replicas int      // of every stream: 1 (default), 3 or 5

	AckWait       time.Duration // until a message that is not answered is delivered again; DefaultAckWait
	MaxAckPending int           // delivered and unanswered messages per durable; DefaultMaxAckPending, at least the largest batch
	Keep          time.Duration // age limit of outcomes, status, tables and shares; DefaultKeep
	PinTTL        time.Duration // DefaultPinTTL; negative: several replicas may fetch items of one table at a time
}

func (t *Topology) defaults() error {
	if t.Replicas == 0 {
		t.Replicas = 1
	}
	if t.AckWait <= 0 {
		t.AckWait = DefaultAckWait
	}
	if t.MaxAckPending <= 0 {
		t.MaxAckPending = DefaultMaxAckPending
	}
	if t.PinTTL == 0 {
		t.PinTTL = DefaultPinTTL
	}
	if t.Keep <= 0 {
		t.Keep = DefaultKeep
	}
	if t.Replicas < 1 || t.Replicas > 5 || t.Replicas%2 == 0 {
		return fmt.Errorf("replicas: %d is not 1, 3 or 5", t.Replicas)
	}
	for _, table := range t.Tables {
		if !events.ValidName(table) {
			return fmt.Errorf("table %q: not a name", table)
		}
	}
	return nil
}

// streams returns the streams in the order in which they are declared.
func (t *Topology) streams() []jetstream.StreamConfig {
	base := func(name, description, subject string) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: name, Description: description, Subjects: []string{subject},
			Storage: jetstream.FileStorage, Replicas: t.Replicas, Duplicates: duplicates,
			MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1,
			Discard: jetstream.DiscardOld,
		}
	}
	queue := func(name, description, subject string, maxBytes int32) jetstream.StreamConfig {
		c := base(name, description, subject)
		c.Retention = jetstream.WorkQueuePolicy
		c.MaxMsgSize = maxBytes
		return c
	}
	kept := func(name, description, subject string) jetstream.StreamConfig {
		c := base(name, description, subject)
		c.MaxAge = t.Keep
		c.AllowDirect = true
		return c
	}
	dead := base(events.StreamDead, "Work that was given up, until it is replayed or removed", "delenda.dead.*")
	dead.AllowDirect = true
	return []jetstream.StreamConfig{
		queue(events.StreamIntake, "Erasure requests from message senders", "delenda.intake.*", MaxIntakeBytes),
		queue(events.StreamRequests, "Work items: one request on one table", "delenda.requests.*", MaxItemBytes),
		kept(events.StreamOutcomes, "Answers to message senders", "delenda.outcome.*"),
		kept(events.StreamStatus, "Reports about work items", "delenda.status.*"),
		kept(events.StreamTables, "Changes of tables", "delenda.tables.*"),
		kept(events.StreamShares, "Changes of shared tables, for recipients", "delenda.shares.*.*.*"),
		dead,
	}
}

type durable struct {
	stream string
	config jetstream.ConsumerConfig
}

func (t *Topology) durables() []durable {
	base := func(name, subject string) jetstream.ConsumerConfig {
		return jetstream.ConsumerConfig{
			Durable: name, FilterSubject: subject,
			AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
			AckWait: t.AckWait, MaxDeliver: -1, MaxAckPending: t.MaxAckPending,
			// What keeps failing without an answer is delivered ever more slowly.
			BackOff: []time.Duration{t.AckWait, 2 * t.AckWait, 4 * t.AckWait, 10 * t.AckWait},
		}
	}
	list := []durable{{events.StreamIntake, base(IntakeDurable, "delenda.intake.*")}}
	for _, table := range t.Tables {
		c := base(DeleterDurable(table), events.RequestsSubject(table))
		if t.PinTTL > 0 {
			c.PriorityPolicy = jetstream.PriorityPolicyPinned
			c.PriorityGroups = []string{pinGroup}
			c.PinnedTTL = t.PinTTL
		}
		list = append(list, durable{events.StreamRequests, c})
	}
	return list
}

// Declare creates what is missing of the streams, durable consumers and
// key-value buckets, and updates what differs. A server that takes smaller
// messages than MinPayload is refused. It may run at any time, in any
// number of processes. It never shortens what is kept silently: fewer replicas,
// a shorter age limit, other subjects or another retention than the server
// holds are ErrTopology. Durables of tables that are not named stay as they are.
func (b *Bus) Declare(ctx context.Context, t Topology) error {
	if err := t.defaults(); err != nil {
		return fmt.Errorf("declare: %w", err)
	}
	if have := b.nc.MaxPayload(); b.Connected() && have < MinPayload {
		return fmt.Errorf("declare: %w: the server's max_payload is %d bytes, at least %d are needed", ErrTopology, have, MinPayload)
	}
	for _, want := range t.streams() {
		err := b.run(ctx, "declare", want.Name, func(ctx context.Context) error { return b.declareStream(ctx, want) })
		if err != nil {
			return fmt.Errorf("declare stream %s: %w", want.Name, err)
		}
	}
	for _, d := range t.durables() {
		err := b.run(ctx, "declare", d.stream+"/"+d.config.Durable, func(ctx context.Context) error {
			return b.declareConsumer(ctx, d)
		})
		if err != nil {
			return fmt.Errorf("declare consumer %s of %s: %w", d.config.Durable, d.stream, err)
		}
	}
	for _, bucket := range []string{events.KVHeads} {
		err := b.run(ctx, "declare", bucket, func(ctx context.Context) error {
			return b.declareBucket(ctx, bucket, t.Replicas)
		})
		if err != nil {
			return fmt.Errorf("declare bucket %s: %w", bucket, err)
		}
	}
	return nil
}

func (b *Bus) declareStream(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := b.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = b.js.CreateStream(ctx, want)
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
		s, err = b.js.Stream(ctx, want.Name) // another process was first, with other settings
	}
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	switch {
	case have.Retention != want.Retention:
		return fmt.Errorf("%w: retention is %s, not %s", ErrTopology, have.Retention, want.Retention)
	case have.Storage != want.Storage:
		return fmt.Errorf("%w: storage is %s, not %s", ErrTopology, have.Storage, want.Storage)
	case !slices.Equal(have.Subjects, want.Subjects):
		return fmt.Errorf("%w: subjects are %q, not %q", ErrTopology, have.Subjects, want.Subjects)
	case have.Replicas > want.Replicas:
		return fmt.Errorf("%w: it has %d replicas, configured are %d", ErrTopology, have.Replicas, want.Replicas)
	case want.MaxAge > 0 && (have.MaxAge == 0 || have.MaxAge > want.MaxAge):
		return fmt.Errorf("%w: messages are kept for %v, configured is %v", ErrTopology, have.MaxAge, want.MaxAge)
	case have.Sealed || have.DenyDelete:
		return fmt.Errorf("%w: messages cannot be removed from it", ErrTopology)
	case have.Description == want.Description && have.Replicas == want.Replicas && have.MaxAge == want.MaxAge &&
		have.MaxMsgSize == want.MaxMsgSize && have.Duplicates == want.Duplicates && have.AllowDirect == want.AllowDirect:
		return nil
	}
	have.Description, have.Replicas, have.MaxAge = want.Description, want.Replicas, want.MaxAge
	have.MaxMsgSize, have.Duplicates, have.AllowDirect = want.MaxMsgSize, want.Duplicates, want.AllowDirect
	_, err = b.js.UpdateStream(ctx, have)
	return err
}

func (b *Bus) declareConsumer(ctx context.Context, d durable) error {
	c, err := b.js.Consumer(ctx, d.stream, d.config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = b.js.CreateConsumer(ctx, d.stream, d.config)
		return err
	}
	if err != nil {
		return err
	}
	have := c.CachedInfo().Config
	if have.FilterSubject != d.config.FilterSubject || have.AckPolicy != d.config.AckPolicy {
		return fmt.Errorf("%w: it filters %q with %s", ErrTopology, have.FilterSubject, have.AckPolicy)
	}
	want := d.config
	if have.AckWait == want.AckWait && have.MaxAckPending == want.MaxAckPending && have.MaxDeliver == want.MaxDeliver &&
		slices.Equal(have.BackOff, want.BackOff) && have.PriorityPolicy == want.PriorityPolicy &&
		have.PinnedTTL == want.PinnedTTL {
		return nil
	}
	have.AckWait, have.MaxAckPending, have.MaxDeliver, have.BackOff = want.AckWait, want.MaxAckPending, want.MaxDeliver, want.BackOff
	have.PriorityPolicy, have.PriorityGroups, have.PinnedTTL = want.PriorityPolicy, want.PriorityGroups, want.PinnedTTL
	_, err = b.js.UpdateConsumer(ctx, d.stream, have)
	return err
}

func (b *Bus) declareBucket(ctx context.Context, bucket string, replicas int) error {
	want := jetstream.KeyValueConfig{Bucket: bucket, History: 1, Storage: jetstream.FileStorage, Replicas: replicas}
	kv, err := b.js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = b.js.CreateKeyValue(ctx, want)
		return err
	}
	if err != nil {
		return err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return err
	}
	have := status.Config()
	switch {
	case have.Replicas > replicas:
		return fmt.Errorf("%w: it has %d replicas, configured are %d", ErrTopology, have.Replicas, replicas)
	case have.Replicas == replicas && have.History == 1:
		return nil
	}
	_, err = b.js.UpdateKeyValue(ctx, want)
	return err
}
