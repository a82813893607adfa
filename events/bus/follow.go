package bus

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// FollowOptions say where a follower begins. The zero value yields all that the
// stream holds, then what comes.
type FollowOptions struct {
	Subjects     []string  // with wildcards; all of the stream's if empty
	FromSequence uint64    // first sequence; resume with the last one seen plus one
	Since        time.Time // first time, if FromSequence is zero
	OnlyNew      bool      // nothing that is stored already
	LastPerTopic bool      // of what is stored, the newest of each subject only
}

// Update is one step of a follower: a record, or the news that it is current.
type Update struct {
	Record   *Record // nil: everything stored by now has been yielded
	CaughtUp bool    // set with a nil Record, once
}

// Follow yields a stream's messages in order, without acknowledging them, and
// once, when all that was stored at the beginning has been yielded, an Update
// that is CaughtUp. It ends when ctx does (without an error) and with
// ErrDisconnected as soon as it may no longer be current: the connection broke,
// or two heartbeats (Options.Heartbeat) are missing. Until then it is current,
// to within two heartbeats. Follow again from the last sequence seen.
//
// The caller must not dwell on an Update for longer than the server's patience
// with an idle consumer, a minute.
func (b *Bus) Follow(ctx context.Context, stream string, o FollowOptions) iter.Seq2[Update, error] {
	cfg := jetstream.ConsumerConfig{FilterSubjects: o.Subjects, DeliverPolicy: jetstream.DeliverAllPolicy}
	switch {
	case o.FromSequence > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, o.FromSequence
	case !o.Since.IsZero():
		since := o.Since.UTC()
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	case o.OnlyNew:
		cfg.DeliverPolicy = jetstream.DeliverNewPolicy
	case o.LastPerTopic:
		cfg.DeliverPolicy = jetstream.DeliverLastPerSubjectPolicy
		if len(cfg.FilterSubjects) == 0 {
			cfg.FilterSubjects = []string{">"}
		}
	}
	return func(yield func(Update, error) bool) {
		b.follow(ctx, stream, cfg, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			if m == nil {
				return yield(Update{CaughtUp: true}, nil)
			}
			return yield(Update{Record: record(m, meta)}, nil)
		}, func(err error) { yield(Update{}, err) })
	}
}

// Watch yields the bucket's entries whose keys match pattern ("*" a token, ">"
// the rest), first what is there, then, with a nil Entry, that it is complete,
// then every change. It ends as Follow does: as long as it has not ended, what
// it yielded is current to within two heartbeats.
func (k *KV) Watch(ctx context.Context, pattern string) iter.Seq2[*Entry, error] {
	prefix := "$KV." + k.bucket + "."
	cfg := jetstream.ConsumerConfig{
		FilterSubjects: []string{prefix + pattern}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	}
	return func(yield func(*Entry, error) bool) {
		k.bus.follow(ctx, "KV_"+k.bucket, cfg, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			if m == nil {
				return yield(nil, nil)
			}
			return yield(&Entry{
				Key: m.Subject()[len(prefix):], Value: m.Data(), Revision: meta.Sequence.Stream,
				Time:    meta.Timestamp.UTC(),
				Deleted: m.Headers().Get("KV-Operation") != "" || m.Headers().Get("Nats-Marker-Reason") != "",
			}, nil)
		}, func(err error) { yield(nil, err) })
	}
}

// follow runs one session of a consumer that lives as long as the session. emit
// gets nil once when it is caught up; fail gets what ended the session, unless
// ctx or emit did.
func (b *Bus) follow(
	ctx context.Context, stream string, cfg jetstream.ConsumerConfig,
	emit func(jetstream.Msg, *jetstream.MsgMetadata) bool, fail func(error),
) {
	stopped := false
	err := b.around(ctx, "follow", stream, func(ctx context.Context) error {
		return b.session(ctx, stream, cfg, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			stopped = !emit(m, meta)
			return !stopped
		})
	})
	if err != nil && !stopped && ctx.Err() == nil {
		fail(fmt.Errorf("follow %s: %w", stream, err))
	}
}

func (b *Bus) session(
	ctx context.Context, stream string, cfg jetstream.ConsumerConfig,
	emit func(jetstream.Msg, *jetstream.MsgMetadata) bool,
) error {
	if !b.Connected() {
		return errOffline
	}
	ctx, cancel := b.whileConnected(ctx)
	defer cancel()

	cfg.AckPolicy = jetstream.AckNonePolicy
	cfg.MemoryStorage, cfg.Replicas, cfg.InactiveThreshold = true, 1, time.Minute
	cctx, stop := context.WithTimeout(ctx, b.timeout)
	cons, err := b.js.CreateConsumer(cctx, stream, cfg)
	stop()
	if err != nil {
		return cause(ctx, err)
	}
	defer b.dismiss(context.WithoutCancel(ctx), stream, cons.CachedInfo().Name)

	heartbeat := max(b.heartbeat, 500*time.Millisecond)
	msgs, err := cons.Messages(jetstream.PullHeartbeat(heartbeat), jetstream.PullExpiry(max(30*time.Second, 2*heartbeat)))
	if err != nil {
		return cause(ctx, err)
	}
	defer msgs.Stop()

	waiting := cons.CachedInfo().NumPending
	caughtUp := waiting == 0
	if caughtUp && !emit(nil, nil) {
		return nil
	}
	for next := uint64(1); ; next++ {
		m, err := msgs.Next(jetstream.NextContext(ctx))
		if err != nil {
			return cause(ctx, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != next {
			return fmt.Errorf("%w: a message is missing", ErrDisconnected)
		}
		if !emit(m, meta) {
			return nil
		}
		if !caughtUp && (next >= waiting || meta.NumPending == 0) {
			caughtUp = true
			if !emit(nil, nil) {
				return nil
			}
		}
	}
}

// dismiss removes the consumer of a finished session; if that does not succeed
// the server does after InactiveThreshold.
func (b *Bus) dismiss(ctx context.Context, stream, consumer string) {
	if !b.Connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = b.js.DeleteConsumer(ctx, stream, consumer)
}

func record(m jetstream.Msg, meta *jetstream.MsgMetadata) *Record {
	return &Record{
		Subject: m.Subject(), Data: m.Data(), Stream: meta.Stream, Sequence: meta.Sequence.Stream,
		Time: meta.Timestamp.UTC(), MsgID: m.Headers().Get(nats.MsgIdHdr),
	}
}
