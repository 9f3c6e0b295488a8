#include "side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const device = "line0";

void fail(const char *what) {
  fprintf(stderr, "test-line: cannot %s: %s\n", what, strerror(errno));
  exit(1);
}

static struct ifreq request_for(const char *name) {
  struct ifreq request = {0};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  return request;
}

static void set_address(int socket, unsigned long command, const char *address) {
  struct ifreq request = request_for(device);
  struct sockaddr_in *internet = (struct sockaddr_in *)&request.ifr_addr;
  internet->sin_family = AF_INET;
  if (inet_pton(AF_INET, address, &internet->sin_addr) != 1 || ioctl(socket, command, &request))
    fail("give the device its address");
}

static void bring_up(int socket, const char *name) {
  struct ifreq request = request_for(name);
  if (ioctl(socket, SIOCGIFFLAGS, &request)) fail("read the flags of a network device");
  request.ifr_flags |= IFF_UP;
  if (ioctl(socket, SIOCSIFFLAGS, &request)) fail("bring a network device up");
}

// Appends an attribute to a netlink message, which has room for it.
static struct rtattr *append(struct nlmsghdr *message, int type, const void *value, size_t length) {
  struct rtattr *attribute = (struct rtattr *)((char *)message + NLMSG_ALIGN(message->nlmsg_len));
  attribute->rta_type = (unsigned short)type;
  attribute->rta_len = (unsigned short)RTA_LENGTH(length);
  if (length) memcpy(RTA_DATA(attribute), value, length);
  message->nlmsg_len = (unsigned)(NLMSG_ALIGN(message->nlmsg_len) + RTA_ALIGN(attribute->rta_len));
  return attribute;
}

// Has the device's route name the congestion control. In a namespace that is not the machine's first, the sysctl takes
// only what is allowed to everybody.
static void control_congestion(const char *name) {
  struct {
    struct nlmsghdr head;
    struct rtmsg route;
    char attributes[256];
  } request = {
      .head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg)), .nlmsg_type = RTM_NEWROUTE,
               .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE | NLM_F_CREATE},
      .route = {.rtm_family = AF_INET, .rtm_dst_len = 24, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_KERNEL,
                .rtm_scope = RT_SCOPE_LINK, .rtm_type = RTN_UNICAST},
  };
  struct in_addr network;
  inet_pton(AF_INET, "10.9.0.0", &network);
  unsigned index = if_nametoindex(device);
  append(&request.head, RTA_DST, &network, sizeof network);
  append(&request.head, RTA_OIF, &index, sizeof index);
  struct rtattr *metrics = append(&request.head, RTA_METRICS, NULL, 0);
  append(&request.head, RTAX_CC_ALGO, name, strnlen(name, 16) + 1);
  metrics->rta_len = (unsigned short)((char *)&request + request.head.nlmsg_len - (char *)metrics);

  struct {
    struct nlmsghdr head;
    struct nlmsgerr error;
    char rest[1024];
  } reply;
  int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (netlink < 0 || send(netlink, &request, request.head.nlmsg_len, 0) < 0 ||
      recv(netlink, &reply, sizeof reply, 0) < (ssize_t)NLMSG_LENGTH(sizeof reply.error))
    fail("talk to the kernel about routes");
  if (reply.head.nlmsg_type != NLMSG_ERROR || reply.error.error) {
    errno = reply.head.nlmsg_type == NLMSG_ERROR ? -reply.error.error : EPROTO;
    fail("set the congestion control of TCP");
  }
  close(netlink);
}

struct side make_side(const char *address, const char *congestion_control) {
  if (unshare(CLONE_NEWNET)) fail("make a network namespace (it takes root)");
  struct side side;
  side.network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (side.network < 0) fail("open /proc/self/ns/net");

  side.tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (side.tun < 0) fail("open /dev/net/tun");
  struct ifreq request = request_for(device);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(side.tun, TUNSETIFF, &request)) fail("make a TUN device");

  int socket_of_it = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_of_it < 0) fail("make a socket");
  set_address(socket_of_it, SIOCSIFADDR, address);
  set_address(socket_of_it, SIOCSIFNETMASK, "255.255.255.0");
  bring_up(socket_of_it, device);
  bring_up(socket_of_it, "lo");
  close(socket_of_it);

  if (congestion_control) control_congestion(congestion_control);
  return side;
}
