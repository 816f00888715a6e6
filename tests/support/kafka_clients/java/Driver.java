import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Runs Java clients and Kafka's tools for tests in another process.
 *
 * <p>Each line of stdin is a call in JSON, with the id of an object ("on") unless it makes one. Each is answered by one
 * line on stdout: {"value": ...} or {"error": ..., "aborts": ...}. Bytes are in hex. The process ends with its stdin.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final long MAX_CLOSE_MS = 2_000;

    private final Map<Integer, AutoCloseable> objects = new HashMap<>();
    private int last = 0;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in));
        Driver driver = new Driver();
        String line;
        while ((line = calls.readLine()) != null) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("value", driver.call(JSON.readTree(line)));
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
                answer.put("aborts", canAbort(cause));
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** Whether Kafka's documentation allows abortTransaction after this error of a producer. */
    private static boolean canAbort(Throwable error) {
        return error instanceof KafkaException
                && !(error instanceof ProducerFencedException
                        || error instanceof OutOfOrderSequenceException
                        || error instanceof AuthorizationException);
    }

    private Object call(JsonNode call) throws Exception {
        String name = call.get("call").asText();
        switch (name) {
            case "consumer":
                return add(new KafkaConsumer<>(config(call), new ByteArrayDeserializer(), new ByteArrayDeserializer()));
            case "producer":
                return add(new KafkaProducer<>(config(call), new ByteArraySerializer(), new ByteArraySerializer()));
            case "streams":
                return add(streams(call));
            case "tool":
                return tool(call.get("class").asText(), strings(call.get("arguments")), call.get("stdin").asText());
            default:
                Object object = objects.get(call.get("on").asInt());
                if (object instanceof KafkaStreams streams) {
                    return ofStreams(streams, name, call);
                }
                return object instanceof Consumer ? ofConsumer(name, call) : ofProducer(name, call);
        }
    }

    private int add(AutoCloseable object) {
        objects.put(++last, object);
        return last;
    }

    @SuppressWarnings("unchecked")
    private Consumer<byte[], byte[]> consumer(int id) {
        return (Consumer<byte[], byte[]>) objects.get(id);
    }

    @SuppressWarnings("unchecked")
    private KafkaProducer<byte[], byte[]> producer(int id) {
        return (KafkaProducer<byte[], byte[]>) objects.get(id);
    }

    private Object ofConsumer(String name, JsonNode call) throws InterruptedException {
        int id = call.get("on").asInt();
        Consumer<byte[], byte[]> consumer = consumer(id);
        switch (name) {
            case "subscribe" -> consumer.subscribe(strings(call.get("topics")));
            case "subscribe_pattern" -> consumer.subscribe(Pattern.compile(call.get("pattern").asText()));
            case "subscribe_pattern_of_brokers" ->
                    consumer.subscribe(new SubscriptionPattern(call.get("pattern").asText()));
            case "assign" -> {
                consumer.assign(List.of(place(call)));
                consumer.seek(place(call), call.get("offset").asLong());
            }
            case "poll" -> {
                return records(consumer.poll(Duration.ofMillis(call.get("ms").asLong())));
            }
            case "assignment" -> {
                return consumer.assignment().stream().map(each -> List.of(each.topic(), each.partition())).toList();
            }
            case "commit" -> consumer.commitSync();
            case "committed" -> {
                OffsetAndMetadata found = consumer.committed(java.util.Set.of(place(call))).get(place(call));
                return found == null ? null : found.offset();
            }
            case "end" -> {
                return consumer.endOffsets(List.of(place(call))).get(place(call));
            }
            case "position" -> {
                return consumer.position(place(call));
            }
            case "rewind" -> {
                // After an aborted transaction, records are read again from the committed offsets on.
                consumer.committed(consumer.assignment()).forEach((place, offset) -> {
                    if (offset == null) {
                        consumer.seekToBeginning(List.of(place));
                    } else {
                        consumer.seek(place, offset);
                    }
                });
            }
            case "close" -> {
                objects.remove(id);
                // In the middle of a rebalance, it waits for members that call this thread later.
                Thread closing = new Thread(consumer::close);
                closing.setDaemon(true);
                closing.start();
                closing.join(MAX_CLOSE_MS);
            }
            default -> throw new IllegalArgumentException("unknown call of a consumer: " + name);
        }
        return null;
    }

    private Object ofProducer(String name, JsonNode call) throws Exception {
        int id = call.get("on").asInt();
        KafkaProducer<byte[], byte[]> producer = producer(id);
        switch (name) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "produce" -> produce(producer, call);
            case "send_offset" -> producer.sendOffsetsToTransaction(
                    Map.of(place(call), new OffsetAndMetadata(call.get("offset").asLong())),
                    new ConsumerGroupMetadata(call.get("group").asText()));
            case "send_positions" -> {
                Consumer<byte[], byte[]> consumer = consumer(call.get("consumer").asInt());
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                for (TopicPartition place : consumer.assignment()) {
                    positions.put(place, new OffsetAndMetadata(consumer.position(place)));
                }
                producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
            }
            case "commit" -> {
                // In a thread of its own, because the call gives up earlier than the producer.
                CompletableFuture<Void> commit = CompletableFuture.runAsync(producer::commitTransaction);
                commit.get(call.get("ms").asLong(), TimeUnit.MILLISECONDS);
            }
            case "abort" -> producer.abortTransaction();
            case "close" -> {
                objects.remove(id);
                producer.close();
            }
            case "crash" -> {
                objects.remove(id);
                producer.close(Duration.ZERO);
            }
            default -> throw new IllegalArgumentException("unknown call of a producer: " + name);
        }
        return null;
    }

    private static void produce(KafkaProducer<byte[], byte[]> producer, JsonNode call) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (JsonNode each : call.get("records")) {
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    call.get("topic").asText(),
                    each.hasNonNull("partition") ? each.get("partition").asInt() : null,
                    each.hasNonNull("timestamp_ms") ? each.get("timestamp_ms").asLong() : null,
                    bytes(each.get("key")),
                    bytes(each.get("value")));
            for (JsonNode header : each.get("headers")) {
                record.headers().add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            sent.add(producer.send(record));
        }
        for (Future<?> each : sent) {
            each.get();
        }
    }

    /** Counts the words of a topic: in memory, with a changelog topic. */
    private static KafkaStreams streams(JsonNode call) {
        StreamsBuilder builder = new StreamsBuilder();
        Materialized<String, Long, KeyValueStore<Bytes, byte[]>> store =
                Materialized.as(Stores.inMemoryKeyValueStore("words"));
        builder.stream(call.get("input").asText(), Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(store.withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(call.get("output").asText(), Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config(call));
        streams.start();
        return streams;
    }

    private Object ofStreams(KafkaStreams streams, String name, JsonNode call) {
        switch (name) {
            case "state" -> {
                return streams.state().name();
            }
            case "close" -> {
                objects.remove(call.get("on").asInt());
                return streams.close(new KafkaStreams.CloseOptions().timeout(Duration.ofSeconds(20)).leaveGroup(true));
            }
            default -> throw new IllegalArgumentException("unknown call of a streams application: " + name);
        }
    }

    /** Runs a tool as if in a process of its own: an exit ends its thread, and its shutdown hooks run at the end. */
    private static Map<String, Object> tool(String className, List<String> arguments, String stdin) throws Exception {
        Method main = Class.forName(className).getMethod("main", String[].class);
        CompletableFuture<Integer> ended = new CompletableFuture<>();
        List<Runnable> hooks = new ArrayList<>();
        Exit.Procedure exit = (status, message) -> {
            ended.complete(status);
            // Tools catch errors and go on. So this thread never does.
            while (true) {
                LockSupport.park();
            }
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        PrintStream out = System.out;
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(output, true);
        System.setIn(new ByteArrayInputStream(stdin.getBytes()));
        System.setOut(stream);
        System.setErr(stream);
        Thread thread = new Thread(() -> {
            try {
                main.invoke(null, (Object) arguments.toArray(new String[0]));
                ended.complete(0);
            } catch (ReflectiveOperationException error) {
                error.getCause().printStackTrace();
                ended.complete(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        try {
            int status = ended.get();
            hooks.forEach(Runnable::run);
            return Map.of("status", status, "output", output.toString());
        } finally {
            System.setOut(out);
            System.setErr(out);
        }
    }

    private static Properties config(JsonNode call) {
        Properties config = new Properties();
        call.get("config").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        return config;
    }

    private static TopicPartition place(JsonNode call) {
        return new TopicPartition(call.get("topic").asText(), call.get("partition").asInt());
    }

    private static List<String> strings(JsonNode nodes) {
        List<String> found = new ArrayList<>();
        nodes.forEach(each -> found.add(each.asText()));
        return found;
    }

    private static byte[] bytes(JsonNode hex) {
        return hex == null || hex.isNull() ? null : HEX.parseHex(hex.asText());
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }

    private static List<Map<String, Object>> records(ConsumerRecords<byte[], byte[]> polled) {
        List<Map<String, Object>> found = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : polled) {
            Map<String, Object> each = new HashMap<>();
            each.put("value", hex(record.value()));
            each.put("key", hex(record.key()));
            List<List<String>> headers = new ArrayList<>();
            record.headers().forEach(header -> headers.add(List.of(header.key(), hex(header.value()))));
            each.put("headers", headers);
            each.put("timestamp_ms", record.timestamp());
            each.put("partition", record.partition());
            found.add(each);
        }
        return found;
    }
}
