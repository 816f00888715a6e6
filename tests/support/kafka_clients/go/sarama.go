package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// delivered is a message with the session in which it was read.
type delivered struct {
	message *sarama.ConsumerMessage
	session sarama.ConsumerGroupSession
}

type saramaMember struct {
	group    sarama.ConsumerGroup
	settings settings
	stop     context.CancelFunc
	stopped  chan struct{}
	messages chan delivered
	failures chan error
	producer sarama.SyncProducer // nil without transactions
	pending  []delivered

	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
}

func saramaConfig(clientID string) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	if clientID != "" {
		config.ClientID = clientID
	}
	config.Metadata.Retry.Backoff = heartbeatWait
	config.Metadata.Retry.Max = 30
	config.Consumer.Retry.Backoff = retryWait
	config.Consumer.MaxWaitTime = fetchWait
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = heartbeatWait
	config.Consumer.Group.Rebalance.Retry.Backoff = heartbeatWait
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	return config
}

func startMember(s settings, config *sarama.Config) (*saramaMember, error) {
	config.Consumer.Group.Session.Timeout = s.sessionTimeout()
	config.Consumer.Group.InstanceId = s.InstanceID
	group, err := sarama.NewConsumerGroup(s.Servers, s.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &saramaMember{
		group: group, settings: s, stop: stop,
		stopped: make(chan struct{}), messages: make(chan delivered), failures: make(chan error, 100),
	}
	go func() {
		for err := range group.Errors() {
			select {
			case m.failures <- err:
			default:
			}
		}
	}()
	go func() {
		defer close(m.stopped)
		for ctx.Err() == nil {
			// Returns when the group rebalances, and with an error when the coordinator is away for long.
			if err := group.Consume(ctx, []string{s.Topic}, m); err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(retryWait):
				}
			}
		}
	}()
	return m, nil
}

func startSarama(s settings) (member, error) {
	return startMember(s, saramaConfig(s.ClientID))
}

func transformWithSarama(s settings) (transformer, error) {
	config := saramaConfig(s.ClientID)
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = s.TransactionalID
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(s.Servers, config)
	if err != nil {
		return nil, err
	}
	m, err := startMember(s, config)
	if err != nil {
		return nil, err
	}
	m.producer = producer
	return m, nil
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	return nil
}

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = nil
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			select {
			case m.messages <- delivered{message, session}:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

// receive returns the messages that arrive without a pause, after a short wait for the first one.
func (m *saramaMember) receive() []delivered {
	var found []delivered
	wait := pollWait
	for {
		select {
		case each := <-m.messages:
			if m.producer == nil {
				each.session.MarkMessage(each.message, "")
			}
			found = append(found, each)
			wait = pollWait / 10
		case <-time.After(wait):
			return found
		}
	}
}

func (m *saramaMember) poll() ([]record, error) {
	return ofSarama(m.receive()), nil
}

func (m *saramaMember) current() sarama.ConsumerGroupSession {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.session
}

func (m *saramaMember) assignment() ([]place, error) {
	places := []place{}
	if session := m.current(); session != nil {
		for topic, partitions := range session.Claims() {
			for _, partition := range partitions {
				places = append(places, place{topic, partition})
			}
		}
	}
	return places, nil
}

// commit reports an error that the client has reported since the last call: Commit itself returns none.
func (m *saramaMember) commit() error {
	session := m.current()
	if session == nil {
		return errors.New("no session, because of a rebalance")
	}
	for len(m.failures) > 0 {
		<-m.failures
	}
	session.Commit()
	select {
	case err := <-m.failures:
		return err
	case <-time.After(time.Millisecond):
		return nil
	}
}

func (m *saramaMember) transform(commits bool) ([]record, error) {
	received := append(m.pending, m.receive()...)
	m.pending = nil
	session := m.current()
	for _, each := range received {
		if each.session == session { // Else the new session repeats it.
			m.pending = append(m.pending, each)
		}
	}
	if len(m.pending) == 0 {
		return []record{}, nil
	}
	err := m.transact(commits)
	if err != nil && m.producer.TxnStatus()&sarama.ProducerTxnFlagAbortableError != 0 {
		return []record{}, m.producer.AbortTxn()
	}
	if err != nil {
		return nil, err
	}
	done := ofSarama(m.pending)
	if commits {
		m.pending = nil
	}
	return done, nil
}

func (m *saramaMember) transact(commits bool) error {
	if err := m.producer.BeginTxn(); err != nil {
		return err
	}
	var copies []*sarama.ProducerMessage
	for _, each := range m.pending {
		copies = append(copies, &sarama.ProducerMessage{
			Topic: m.settings.Output, Key: sarama.ByteEncoder(each.message.Key), Value: sarama.ByteEncoder(each.message.Value),
		})
	}
	var failed sarama.ProducerErrors
	if err := m.producer.SendMessages(copies); errors.As(err, &failed) {
		return failed[0]
	}
	if !commits {
		return m.producer.AbortTxn()
	}
	for _, each := range m.pending {
		if err := m.producer.AddMessageToTxn(each.message, m.settings.Group, nil); err != nil {
			return err
		}
	}
	return m.producer.CommitTxn()
}

func (m *saramaMember) close() error {
	m.stop()
	<-m.stopped
	err := m.group.Close()
	if m.producer != nil {
		err = errors.Join(err, m.producer.Close())
	}
	return err
}

func (m *saramaMember) crash() error {
	return m.close() // does not end the transaction
}

func produceWithSarama(servers []string, topic string, records []record) error {
	producer, err := sarama.NewSyncProducer(servers, saramaConfig(""))
	if err != nil {
		return err
	}
	defer producer.Close()
	var sent []*sarama.ProducerMessage
	for _, each := range records {
		made := &sarama.ProducerMessage{
			Topic: topic, Key: sarama.ByteEncoder(fromHex(each.Key)), Value: sarama.ByteEncoder(fromHex(each.Value)),
		}
		for _, header := range each.Headers {
			made.Headers = append(made.Headers, sarama.RecordHeader{Key: []byte(header[0]), Value: fromHex(&header[1])})
		}
		sent = append(sent, made)
	}
	return producer.SendMessages(sent)
}

func ofSarama(found []delivered) []record {
	records := []record{}
	for _, read := range found {
		each := read.message
		headers := [][]string{}
		for _, header := range each.Headers {
			headers = append(headers, []string{string(header.Key), *toHex(header.Value)})
		}
		timestamp := each.Timestamp.UnixMilli()
		records = append(records, record{toHex(each.Value), toHex(each.Key), headers, &timestamp, &each.Partition})
	}
	return records
}
