package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	client  *kgo.Client
	session *kgo.GroupTransactSession // nil without transactions
	output  string
	mutex   sync.Mutex
	owned   map[place]bool
}

func (f *franz) options(s settings) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(s.Servers...),
		kgo.ClientID(s.ClientID),
		kgo.ConsumerGroup(s.Group),
		kgo.ConsumeTopics(s.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(s.sessionTimeout()),
		kgo.HeartbeatInterval(heartbeatWait),
		kgo.FetchMaxWait(fetchWait),
		kgo.MetadataMinAge(heartbeatWait),
		kgo.RetryBackoffFn(func(int) time.Duration { return retryWait }),
		kgo.OnPartitionsAssigned(f.change(true)),
		kgo.OnPartitionsRevoked(f.change(false)),
		kgo.OnPartitionsLost(f.change(false)),
	}
	if s.InstanceID != "" {
		options = append(options, kgo.InstanceID(s.InstanceID))
	}
	return options
}

func startFranz(s settings) (member, error) {
	f := &franz{owned: map[place]bool{}}
	client, err := kgo.NewClient(append(f.options(s), kgo.DisableAutoCommit())...)
	f.client = client
	return f, err
}

func transformWithFranz(s settings) (transformer, error) {
	f := &franz{owned: map[place]bool{}, output: s.Output}
	session, err := kgo.NewGroupTransactSession(append(f.options(s),
		kgo.TransactionalID(s.TransactionalID),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return nil, err
	}
	f.session, f.client = session, session.Client()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, _, err = f.client.ProducerID(ctx) // initializes the producer, which fences its predecessors
	return f, err
}

func (f *franz) change(isOwned bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		for topic, partitions := range changed {
			for _, partition := range partitions {
				if isOwned {
					f.owned[place{topic, partition}] = true
				} else {
					delete(f.owned, place{topic, partition})
				}
			}
		}
	}
}

func (f *franz) fetch() ([]*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pollWait)
	defer cancel()
	fetches := f.client.PollFetches(ctx)
	for _, each := range fetches.Errors() {
		var lost *kgo.ErrGroupSession // It joins again.
		if !errors.Is(each.Err, context.DeadlineExceeded) && !errors.As(each.Err, &lost) {
			return nil, each.Err
		}
	}
	return fetches.Records(), nil
}

func (f *franz) poll() ([]record, error) {
	found, err := f.fetch()
	return ofFranz(found), err
}

func (f *franz) assignment() ([]place, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	places := []place{}
	for each := range f.owned {
		places = append(places, each)
	}
	return places, nil
}

func (f *franz) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return f.client.CommitUncommittedOffsets(ctx)
}

func (f *franz) transform(commits bool) ([]record, error) {
	found, err := f.fetch()
	if err != nil || len(found) == 0 {
		return []record{}, err
	}
	if err := f.session.Begin(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var copies []*kgo.Record
	for _, each := range found {
		copies = append(copies, &kgo.Record{Topic: f.output, Key: each.Key, Value: each.Value})
	}
	produced := f.session.ProduceSync(ctx, copies...).FirstErr()
	committed, err := f.session.End(ctx, kgo.TransactionEndTry(commits && produced == nil))
	if err := errors.Join(produced, err); err != nil {
		return nil, err
	}
	if committed != commits {
		return []record{}, nil // a rebalance
	}
	return ofFranz(found), nil
}

func (f *franz) close() error {
	f.client.Close()
	return nil
}

func (f *franz) crash() error {
	return f.close() // does not end the transaction
}

func produceWithFranz(servers []string, topic string, records []record) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return err
	}
	defer client.Close()
	var sent []*kgo.Record
	for _, each := range records {
		made := &kgo.Record{Topic: topic, Key: fromHex(each.Key), Value: fromHex(each.Value)}
		for _, header := range each.Headers {
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: header[0], Value: fromHex(&header[1])})
		}
		sent = append(sent, made)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return client.ProduceSync(ctx, sent...).FirstErr()
}

func ofFranz(found []*kgo.Record) []record {
	records := []record{}
	for _, each := range found {
		headers := [][]string{}
		for _, header := range each.Headers {
			headers = append(headers, []string{header.Key, *toHex(header.Value)})
		}
		timestamp := each.Timestamp.UnixMilli()
		records = append(records, record{toHex(each.Value), toHex(each.Key), headers, &timestamp, &each.Partition})
	}
	return records
}
