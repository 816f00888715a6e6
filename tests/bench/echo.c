/* The floor of a server: answers each request with a response that was recorded, and its correlation id. Linux only.

       echo RESPONSES

   RESPONSES (tests/bench/plan.py writes it) has one response per API key. Requests are not decoded: the costs are those of
   the system calls, and of copying bytes. All responses to the requests of one read are sent by one write. Prints its port,
   and ends when stdin is closed.

   Writes block. That is no deadlock as long as requests or responses fit into socket buffers. */

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
#include <unistd.h>

enum { API_KEYS = 128, API_KEY = 4, CORRELATION_ID = 8, CAPACITY = 1 << 20, MOST_EVENTS = 1024, RESPONSE_ID = 4 };

typedef struct {
    int fd;
    size_t received_size;
    unsigned char received[CAPACITY];
} Connection;

static struct {
    int size;
    unsigned char *frame;
} responses[API_KEYS];

static unsigned char *sending;
static size_t sending_capacity;

static void fail(const char *what)
{
    fprintf(stderr, "echo: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static void *allocate(void *old, size_t size)
{
    void *memory = realloc(old, size);
    if (!memory)
        fail("realloc");
    return memory;
}

static int read_int(FILE *file)
{
    int32_t value;
    if (fread(&value, sizeof value, 1, file) != 1)
        fail("file of responses is incomplete");
    return value;
}

static void read_responses(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail(path);
    for (int count = read_int(file); count; count--) {
        int key = read_int(file), size = read_int(file);
        if (key < 0 || key >= API_KEYS)
            fail("unexpected API key");
        responses[key].size = size;
        responses[key].frame = allocate(NULL, size);
        if (fread(responses[key].frame, size, 1, file) != 1)
            fail("file of responses is incomplete");
    }
    fclose(file);
}

static int listening(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)&address, &size))
        fail("listen");
    printf("echo=127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

/* Reads what has arrived and answers all complete requests; returns 0 if the connection is closed. */
static int answer(Connection *connection)
{
    ssize_t arrived =
        read(connection->fd, connection->received + connection->received_size, CAPACITY - connection->received_size);
    size_t position = 0, size = 0;
    if (arrived <= 0)
        return 0;
    connection->received_size += arrived;
    while (connection->received_size - position >= 4) {
        unsigned char *request = connection->received + position;
        uint32_t request_size;
        memcpy(&request_size, request, 4);
        request_size = ntohl(request_size) + 4;
        if (request_size > CAPACITY)
            fail("a request is too large");
        if (connection->received_size - position < request_size)
            break;
        int key = request[API_KEY] << 8 | request[API_KEY + 1];
        if (key >= API_KEYS || !responses[key].frame)
            fail("no response for an API key");
        if (size + responses[key].size > sending_capacity)
            sending = allocate(sending, sending_capacity = 2 * (size + responses[key].size));
        memcpy(sending + size, responses[key].frame, responses[key].size);
        memcpy(sending + size + RESPONSE_ID, request + CORRELATION_ID, 4);
        size += responses[key].size;
        position += request_size;
    }
    connection->received_size -= position;
    memmove(connection->received, connection->received + position, connection->received_size);
    for (size_t done = 0; done < size;) {
        ssize_t written = send(connection->fd, sending + done, size - done, MSG_NOSIGNAL);
        if (written <= 0)
            return 0;
        done += written;
    }
    return 1;
}

int main(int count, char **arguments)
{
    if (count != 2) {
        fprintf(stderr, "usage: echo RESPONSES\n");
        return 2;
    }
    read_responses(arguments[1]);
    int listener = listening(), epoll = epoll_create1(0), one = 1;
    static Connection accepting, ending; /* only their addresses are used */
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &accepting}, events[MOST_EVENTS];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    event.data.ptr = &ending;
    epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event);
    for (;;) {
        int ready = epoll_wait(epoll, events, MOST_EVENTS, -1);
        if (ready < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < ready; i++) {
            Connection *connection = events[i].data.ptr;
            if (connection == &ending)
                return 0;
            if (connection == &accepting) {
                connection = allocate(NULL, sizeof *connection);
                connection->fd = accept(listener, NULL, NULL);
                connection->received_size = 0;
                setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event.data.ptr = connection;
                epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event);
            } else if (!answer(connection)) {
                close(connection->fd);
                free(connection);
            }
        }
    }
}
