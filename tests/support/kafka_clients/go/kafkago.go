package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

type kafkaGo struct {
	reader *kafka.Reader
	read   []kafka.Message // since the last commit
}

func startKafkaGo(s settings) (member, error) {
	return &kafkaGo{reader: kafka.NewReader(kafka.ReaderConfig{
		Brokers:           s.Servers,
		GroupID:           s.Group,
		Topic:             s.Topic,
		Dialer:            &kafka.Dialer{ClientID: s.ClientID, Timeout: callTimeout},
		StartOffset:       kafka.FirstOffset,
		MaxWait:           fetchWait,
		SessionTimeout:    s.sessionTimeout(),
		HeartbeatInterval: heartbeatWait,
		JoinGroupBackoff:  heartbeatWait,
		ReadBackoffMin:    retryWait,
		ReadBackoffMax:    heartbeatWait,
	})}, nil
}

func (k *kafkaGo) poll() ([]record, error) {
	records := []record{}
	wait := pollWait
	for {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		message, err := k.reader.FetchMessage(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return records, nil
		}
		if err != nil {
			return nil, err
		}
		k.read = append(k.read, message)
		records = append(records, ofKafkaGo(message))
		wait = pollWait / 10
	}
}

func (k *kafkaGo) assignment() ([]place, error) {
	return nil, errors.New("a Reader of kafka-go does not tell its partitions")
}

func (k *kafkaGo) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	read := k.read
	k.read = nil // If the commit fails, the Reader joins again and repeats them.
	return k.reader.CommitMessages(ctx, read...)
}

func (k *kafkaGo) close() error {
	return k.reader.Close()
}

func produceWithKafkaGo(servers []string, topic string, records []record) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(servers...), Topic: topic, Balancer: &kafka.Hash{},
		RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond,
	}
	defer writer.Close()
	var sent []kafka.Message
	for _, each := range records {
		made := kafka.Message{Key: fromHex(each.Key), Value: fromHex(each.Value)}
		for _, header := range each.Headers {
			made.Headers = append(made.Headers, kafka.Header{Key: header[0], Value: fromHex(&header[1])})
		}
		sent = append(sent, made)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return writer.WriteMessages(ctx, sent...)
}

func ofKafkaGo(message kafka.Message) record {
	headers := [][]string{}
	for _, header := range message.Headers {
		headers = append(headers, []string{header.Key, *toHex(header.Value)})
	}
	timestamp, partition := message.Time.UnixMilli(), int32(message.Partition)
	return record{toHex(message.Value), toHex(message.Key), headers, &timestamp, &partition}
}
