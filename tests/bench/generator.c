/* A closed-loop load of Kafka requests: one thread, which replays the frames of a plan on many connections. Linux only.

       generator PORT PID DEPTH SECONDS PLAN

   A plan (tests/bench/plan.py writes it) has the steps of each connection, which repeat from one of them on: the frame of
   a request, and what is known of its response. Each connection has DEPTH requests in flight. Before a frame is sent, the
   numbers in it (six digits) are drawn anew from 0 to 99. Parts of a response may be copied into other frames: the
   generation of a JoinGroup response into SyncGroup, the producer id into all requests of transactions. A frame may have
   a record batch of an idempotent producer, with one record, whose sequence number increases. A response is an error if
   its size is unexpected or an error code is not 0. The load ends when all connections have sent their last steps.

   Frames are sent by blocking writes. That is no deadlock as long as requests or responses fit into socket buffers.

   Each connection is opened with its first request and the response, which are not measured: some servers accept only a
   few connections at the same time.

   Prints a JSON object: requests, errors, seconds, the CPU time of the server (the process PID) meanwhile, and with DEPTH 1
   percentiles of the latency. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STALLED_MS = 10000, MOST_EVENTS = 1024 };

/* Positions in a record batch. Its CRC covers everything from the attributes on. */
enum { BATCH_CRC = 17, BATCH_ATTRIBUTES = 21, BATCH_SEQUENCE = 53 };

typedef struct {
    int count;
    int32_t *at;
} Positions;

typedef struct {
    int32_t from; /* position in the response */
    int32_t step; /* number of the step whose frame is changed */
    int32_t to;   /* position in that frame */
    int32_t size;
} Copy;

typedef struct {
    unsigned char *frame;
    int size;
    int response_size;
    Positions errors;  /* of the error codes in the response */
    Positions numbers; /* of the numbers in the request */
    int copy_count;
    Copy *copies;
    int batch;         /* position of the record batch in the request, or -1 */
    int batch_size;
    uint32_t sequence; /* of its next record */
} Step;

typedef struct {
    int fd;
    int step_count;
    int repeat_from; /* number of the step after the last one */
    Step *steps;
    int sending;   /* number of the next step to send */
    int receiving; /* number of the step whose response is next */
    unsigned char *received;
    size_t received_size;
    size_t capacity;
    double sent_at;
} Connection;

static uint64_t random_state = 88172645463325252u;
static uint32_t crc_table[256];

static void fail(const char *what)
{
    fprintf(stderr, "generator: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static void *allocate(size_t size)
{
    void *memory = malloc(size ? size : 1);
    if (!memory)
        fail("malloc");
    return memory;
}

static double seconds_of(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time))
        fail("clock_gettime");
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static double now_s(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

/* A pseudo-random number (xorshift). */
static uint64_t drawn(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void read_plan_bytes(FILE *plan, void *to, size_t size)
{
    if (size && fread(to, size, 1, plan) != 1)
        fail("plan is incomplete");
}

static int read_int(FILE *plan)
{
    int32_t value;
    read_plan_bytes(plan, &value, sizeof value);
    return value;
}

static Positions read_positions(FILE *plan)
{
    Positions positions = {.count = read_int(plan)};
    positions.at = allocate(positions.count * sizeof *positions.at);
    read_plan_bytes(plan, positions.at, positions.count * sizeof *positions.at);
    return positions;
}

static void read_step(FILE *plan, Step *step)
{
    step->size = read_int(plan);
    step->frame = allocate(step->size);
    read_plan_bytes(plan, step->frame, step->size);
    step->response_size = read_int(plan);
    step->errors = read_positions(plan);
    step->numbers = read_positions(plan);
    step->copy_count = read_int(plan);
    step->copies = allocate(step->copy_count * sizeof *step->copies);
    read_plan_bytes(plan, step->copies, step->copy_count * sizeof *step->copies);
    step->batch = read_int(plan);
    step->batch_size = read_int(plan);
    step->sequence = 0;
}

static int connected(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void read_connection(FILE *plan, Connection *connection, int port)
{
    size_t largest = 0;
    connection->step_count = read_int(plan);
    connection->repeat_from = read_int(plan);
    connection->steps = allocate(connection->step_count * sizeof(Step));
    for (int i = 0; i < connection->step_count; i++) {
        read_step(plan, &connection->steps[i]);
        if ((size_t)connection->steps[i].response_size > largest)
            largest = connection->steps[i].response_size;
    }
    connection->capacity = 2 * largest + 65536;
    connection->received = allocate(connection->capacity);
    connection->received_size = 0;
    connection->sending = connection->receiving = 0;
    connection->fd = connected(port);
}

static void draw_numbers(Step *step)
{
    for (int i = 0; i < step->numbers.count; i++) {
        unsigned char *digits = step->frame + step->numbers.at[i];
        int number = drawn() % 100;
        memset(digits, '0', 4);
        digits[4] = '0' + number / 10;
        digits[5] = '0' + number % 10;
    }
}

static void make_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
        crc_table[i] = crc;
    }
}

/* The CRC of record batches (CRC-32C). */
static uint32_t crc_of(const unsigned char *data, int size)
{
    uint32_t crc = 0xffffffff;
    for (int i = 0; i < size; i++)
        crc = crc_table[(crc ^ data[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

static void write_uint32(unsigned char *to, uint32_t value)
{
    value = htonl(value);
    memcpy(to, &value, sizeof value);
}

static void number_batch(Step *step)
{
    unsigned char *batch = step->frame + step->batch;
    if (step->batch < 0)
        return;
    write_uint32(batch + BATCH_SEQUENCE, step->sequence++);
    write_uint32(batch + BATCH_CRC, crc_of(batch + BATCH_ATTRIBUTES, step->batch_size - BATCH_ATTRIBUTES));
}

/* Returns the number of the step after a step. */
static int following(const Connection *connection, int step)
{
    return step + 1 < connection->step_count ? step + 1 : connection->repeat_from;
}

static void send_next(Connection *connection)
{
    Step *step = &connection->steps[connection->sending];
    connection->sending = following(connection, connection->sending);
    draw_numbers(step);
    number_batch(step);
    connection->sent_at = now_s();
    for (int done = 0; done < step->size;) {
        ssize_t written = write(connection->fd, step->frame + done, step->size - done);
        if (written <= 0)
            fail("write");
        done += written;
    }
}

/* Handles one response, given with its size field; returns whether it is an error. */
static int is_error(Connection *connection, const unsigned char *response, int size)
{
    Step *step = &connection->steps[connection->receiving];
    connection->receiving = following(connection, connection->receiving);
    if (size != step->response_size)
        return 1;
    for (int i = 0; i < step->copy_count; i++) {
        const Copy *copy = &step->copies[i];
        memcpy(connection->steps[copy->step].frame + copy->to, response + copy->from, copy->size);
    }
    for (int i = 0; i < step->errors.count; i++)
        if (response[step->errors.at[i]] | response[step->errors.at[i] + 1])
            return 1;
    return 0;
}

/* Reads what has arrived; returns the number of complete responses. */
static int receive(Connection *connection, long *errors)
{
    ssize_t arrived = read(connection->fd, connection->received + connection->received_size,
                           connection->capacity - connection->received_size);
    size_t position = 0;
    int responses = 0;
    if (arrived <= 0)
        fail("the server closed a connection");
    connection->received_size += arrived;
    while (connection->received_size - position >= 4) {
        uint32_t size;
        memcpy(&size, connection->received + position, 4);
        size = ntohl(size) + 4;
        if (size > connection->capacity)
            fail("a response is too large");
        if (connection->received_size - position < size)
            break;
        *errors += is_error(connection, connection->received + position, size);
        position += size;
        responses++;
    }
    connection->received_size -= position;
    memmove(connection->received, connection->received + position, connection->received_size);
    return responses;
}

/* Whether the last steps of a connection are still to be sent. */
static int is_inside(const Connection *connection)
{
    return connection->sending != connection->repeat_from;
}

static int compare(const void *one, const void *other)
{
    float a = *(const float *)one, b = *(const float *)other;
    return (a > b) - (a < b);
}

int main(int count, char **arguments)
{
    if (count != 6) {
        fprintf(stderr, "usage: generator PORT PID DEPTH SECONDS PLAN\n");
        return 2;
    }
    int port = atoi(arguments[1]), depth = atoi(arguments[3]);
    double seconds = atof(arguments[4]);
    clockid_t server_clock;
    if ((errno = clock_getcpuclockid(atoi(arguments[2]), &server_clock)))
        fail("clock_getcpuclockid");
    FILE *plan = fopen(arguments[5], "rb");
    if (!plan)
        fail(arguments[5]);
    make_crc_table();
    int connection_count = read_int(plan), epoll = epoll_create1(0);
    Connection *connections = allocate(connection_count * sizeof *connections);
    long requests = 0, errors = 0, in_flight = 0;
    for (int i = 0; i < connection_count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        read_connection(plan, &connections[i], port);
        epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event);
        send_next(&connections[i]);
        while (!receive(&connections[i], &errors))
            ;
    }
    fclose(plan);

    const size_t most_latencies = depth == 1 ? 4000000 : 0;
    float *latencies = allocate(most_latencies * sizeof *latencies);
    size_t latency_count = 0;
    double start = now_s(), now = start, cpu_s = seconds_of(server_clock);
    for (int i = 0; i < connection_count; i++)
        for (int j = 0; j < depth; j++, in_flight++)
            send_next(&connections[i]);
    while (in_flight) {
        struct epoll_event events[MOST_EVENTS];
        int ready = epoll_wait(epoll, events, MOST_EVENTS, STALLED_MS);
        if (ready <= 0)
            fail("no response for 10 s");
        now = now_s();
        for (int i = 0; i < ready; i++) {
            Connection *connection = events[i].data.ptr;
            int responses = receive(connection, &errors);
            if (responses && latency_count < most_latencies)
                latencies[latency_count++] = (now - connection->sent_at) * 1e6;
            requests += responses;
            in_flight -= responses;
            for (; responses && (now < start + seconds || is_inside(connection)); responses--, in_flight++)
                send_next(connection);
        }
    }
    printf("{\"requests\": %ld, \"errors\": %ld, \"seconds\": %.6f, \"cpu_s\": %.6f", requests, errors,
           now - start, seconds_of(server_clock) - cpu_s);
    if (latency_count) {
        qsort(latencies, latency_count, sizeof *latencies, compare);
        printf(", \"p50_us\": %.1f, \"p99_us\": %.1f", latencies[latency_count / 2],
               latencies[(size_t)(latency_count * 0.99)]);
    }
    printf("}\n");
    return 0;
}
