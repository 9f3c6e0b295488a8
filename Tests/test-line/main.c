// A line with real TCP, for tests and benchmarks: two network namespaces, the server's and the client's, joined by this
// program. It hands the packets of each on to the other half a round trip later. Those for the client pass at one rate;
// they wait in a queue that drops what does not fit, as a router's does. A share of all packets can get lost at random.
// So readers meet what no server can simulate: congestion windows, and other connections' bytes in queues and sockets.
//
//   test-line ROUND_TRIP_MS BYTES_PER_SECOND QUEUE_BYTES [LOSS [CONGESTION_CONTROL]]
//
// Its first line of output is "ready SERVER CLIENT": the two namespaces. `nsenter --net=SERVER COMMAND` starts a
// command in one of them, and leaves it in the mount namespace it is in. The server's address is 10.9.0.1, the
// client's 10.9.0.2.
//
// It answers each line of its input with one: "queued N most N passed N dropped N lost N". `queued` is the bytes in the
// queue now, `most` the most since the answer before; the others count packets to the client from the start.
//
// It ends when its input is a pipe and closes, or when its parent ends. A namespace ends with the last process in it.
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "side.h"

enum { PACKETS = 4096, LONGEST = 1600, TO_CLIENT = 0, TO_SERVER = 1 };

struct packet {
  double due;
  int length;
  char bytes[LONGEST];
};

// Packets on their way, in the order in which they are due.
struct way {
  struct packet *ring;
  unsigned head, tail;
};

struct line {
  double one_way, rate, queue, loss;
  // When the last packet to the client has passed the router.
  double idle_at;
  struct side side[2];
  struct way way[2];
  double most;
  unsigned long passed, dropped, lost;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double queued(const struct line *line, double time) {
  return line->idle_at > time ? (line->idle_at - time) * line->rate : 0;
}

// Sets `sent` to when a packet that comes at `time` has passed the router. There is no queue on the way to the server.
// False when the packet is lost or dropped.
static bool admit(struct line *line, int way, int length, double time, double *sent) {
  *sent = time;
  bool is_lost = line->loss > 0 && drand48() < line->loss;
  if (way == TO_SERVER) return !is_lost;
  double waiting = queued(line, time);
  if (waiting > line->most) line->most = waiting;
  if (is_lost) {
    line->lost++;
    return false;
  }
  if (waiting + length > line->queue) {
    line->dropped++;
    return false;
  }
  line->passed++;
  *sent = line->idle_at = time + (waiting + length) / line->rate;
  return true;
}

static void take(struct line *line, int way, double time) {
  struct way *packets = &line->way[way];
  for (;;) {
    // One place of the ring stays free for the packet that is being read.
    struct packet *packet = &packets->ring[packets->tail % PACKETS];
    packet->length = (int)read(line->side[way].tun, packet->bytes, LONGEST);
    if (packet->length <= 0) return;
    double sent;
    if (packets->tail - packets->head == PACKETS - 1 || !admit(line, way, packet->length, time, &sent)) continue;
    packet->due = sent + line->one_way;
    packets->tail++;
  }
}

static void hand_on(struct line *line, int way, double time) {
  struct way *packets = &line->way[way];
  while (packets->head != packets->tail && packets->ring[packets->head % PACKETS].due <= time) {
    struct packet *packet = &packets->ring[packets->head++ % PACKETS];
    // A device that takes no packet has lost it, as on any line.
    if (write(line->side[!way].tun, packet->bytes, (size_t)packet->length) < 0 && way == TO_CLIENT) line->lost++;
  }
}

// Answers the lines of the input; false at its end.
static bool answer(struct line *line) {
  char text[256];
  ssize_t count = read(STDIN_FILENO, text, sizeof text);
  if (count < 0 && errno == EINTR) return true;
  for (ssize_t index = 0; index < count; index++) {
    if (text[index] != '\n') continue;
    printf("queued %.0f most %.0f passed %lu dropped %lu lost %lu\n", queued(line, now()), line->most, line->passed,
           line->dropped, line->lost);
    line->most = 0;
  }
  return count > 0 && fflush(stdout) == 0;
}

static void run(struct line *line, int parent) {
  struct stat input;
  bool has_input = fstat(STDIN_FILENO, &input) == 0 && (S_ISFIFO(input.st_mode) || S_ISSOCK(input.st_mode));
  for (;;) {
    double wait = 3600, time = now();
    for (int way = 0; way < 2; way++) {
      struct way *packets = &line->way[way];
      if (packets->head == packets->tail) continue;
      double left = packets->ring[packets->head % PACKETS].due - time;
      if (left < wait) wait = left > 0 ? left : 0;
    }
    struct timespec pause = {(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
    struct pollfd ready[] = {
        {line->side[0].tun, POLLIN, 0}, {line->side[1].tun, POLLIN, 0},
        {parent, POLLIN, 0},            {has_input ? STDIN_FILENO : -1, POLLIN, 0},
    };
    if (ppoll(ready, 4, &pause, NULL) < 0 && errno != EINTR) fail("wait for packets");
    if (ready[2].revents || (ready[3].revents && !answer(line))) return;
    time = now();
    for (int way = 0; way < 2; way++) {
      take(line, way, time);
      hand_on(line, way, time);
    }
  }
}

// A number in [least, most]; ends the program at anything else.
static double number(const char *text, const char *name, double least, double most) {
  char *end;
  double value = strtod(text, &end);
  if (end != text && *end == 0 && value >= least && value <= most) return value;
  fprintf(stderr, "test-line: %s is \"%s\", not a number from %g to %g\n", name, text, least, most);
  exit(2);
}

int main(int count, char **word) {
  if (count < 4 || count > 6) {
    fputs("usage: test-line ROUND_TRIP_MS BYTES_PER_SECOND QUEUE_BYTES [LOSS [CONGESTION_CONTROL]]\n", stderr);
    return 2;
  }
  struct line line = {
      .one_way = number(word[1], "ROUND_TRIP_MS", 0, 10000) / 2000,
      .rate = number(word[2], "BYTES_PER_SECOND", 1000, 1e9),
      .queue = number(word[3], "QUEUE_BYTES", LONGEST, 1e8),
      .loss = count > 4 ? number(word[4], "LOSS", 0, 1) : 0,
  };
  int parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
  if (parent < 0) fail("watch the parent");
  // Late packets would be the line's jitter. Both calls only sharpen it.
  setpriority(PRIO_PROCESS, 0, -20);
  prctl(PR_SET_TIMERSLACK, 1000UL);
  srand48(1);  // the same losses in each run
  const char *congestion_control = count > 5 ? word[5] : NULL;
  line.side[0] = make_side("10.9.0.1", congestion_control);
  line.side[1] = make_side("10.9.0.2", congestion_control);
  for (int way = 0; way < 2; way++) {
    line.way[way].ring = calloc(PACKETS, sizeof(struct packet));
    if (!line.way[way].ring) fail("allocate memory");
  }
  printf("ready /proc/%d/fd/%d /proc/%d/fd/%d\n", getpid(), line.side[0].network, getpid(), line.side[1].network);
  if (fflush(stdout)) fail("write to standard output");
  run(&line, parent);
  return 0;
}
