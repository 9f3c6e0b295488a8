#define _GNU_SOURCE
#include "CSystem.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <linux/rtnetlink.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <net/if.h>
#include <netinet/in.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t csystem_boottime_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int csystem_open_without_links(const char *path, int flags) {
  struct open_how how = {.flags = (uint64_t)flags, .resolve = RESOLVE_NO_SYMLINKS};
  return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

int csystem_open_entry(int folder, const char *name) {
  struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_NO_XDEV};
  return (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
}

const char *csystem_parse_date(const char *text, const char *form, struct tm *fields) {
  return strptime(text, form, fields);
}

static uint64_t mount_id(int folder, const char *path, int flags, unsigned which) {
  // struct statx, of which the headers of this machine may not know all: names of our own.
  union {
    struct {
      uint32_t mask;
      char others[140];
      uint64_t mount;
    } known;
    char whole[256];
  } status = {.whole = {0}};
  const int result = (int)syscall(SYS_statx, folder, path, flags, which, &status);
  return result == 0 && status.known.mask & which ? status.known.mount : 0;
}

uint64_t csystem_unique_mount_id(const char *path) {
  return mount_id(AT_FDCWD, path, 0, 0x4000);  // STATX_MNT_ID_UNIQUE
}

uint64_t csystem_mount_id(int descriptor) { return mount_id(descriptor, "", AT_EMPTY_PATH, STATX_MNT_ID); }

int csystem_limit_malloc_arenas(int most) { return mallopt(M_ARENA_MAX, most); }

int csystem_rename_noreplace(int from_dir, const char *from, int to_dir, const char *to) {
  return renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE);
}

void csystem_stand_back(void) {
  struct sched_param none = {0};
  // Linux may refuse this, as where a filter of system calls does; the thread then works as any other.
  (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

void csystem_name_thread(const char *name) {
  char kept[16];
  strncpy(kept, name, sizeof kept - 1);
  kept[sizeof kept - 1] = 0;
  pthread_setname_np(pthread_self(), kept);
}

ssize_t csystem_send_descriptor(int socket, const void *bytes, size_t length, int descriptor) {
  union {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  memset(&control, 0, sizeof control);
  struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (descriptor >= 0) {
    message.msg_control = control.space;
    message.msg_controllen = sizeof control.space;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

ssize_t csystem_receive_descriptor(int socket, void *bytes, size_t length, int *descriptor) {
  union {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control;
  struct iovec part = {.iov_base = bytes, .iov_len = length};
  // Not the whole space: its padding would have room for a second descriptor, which nobody would close.
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = CMSG_LEN(sizeof(int))};
  *descriptor = -1;
  ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (count < 0) return count;
  for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
      memcpy(descriptor, CMSG_DATA(header), sizeof(int));
  if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
    errno = EPROTO;
    return -1;
  }
  return count;
}

int64_t csystem_misordered_packets(int socket, int port) {
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  } own;
  socklen_t length = sizeof own;
  if (getsockname(socket, &own.any, &length) != 0) return -1;
  in_port_t found = own.any.sa_family == AF_INET ? own.v4.sin_port : own.any.sa_family == AF_INET6 ? own.v6.sin6_port : 0;
  if (ntohs(found) != port) return -1;
  struct tcp_info info;
  length = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return -1;
  if (length < offsetof(struct tcp_info, tcpi_rcv_ooopack) + sizeof info.tcpi_rcv_ooopack) return -1;
  return info.tcpi_rcv_ooopack;
}

int64_t csystem_peer_uid(int socket) {
  struct ucred credentials;
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return -1;
  return (int64_t)credentials.uid;
}

int64_t csystem_monotonic_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int csystem_open_address_watch(void) {
  int watch = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (watch < 0) return -1;
  struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
  if (bind(watch, (struct sockaddr *)&address, sizeof address) != 0) {
    int error = errno;
    close(watch);
    errno = error;
    return -1;
  }
  return watch;
}

ssize_t csystem_local_addresses(char *text, size_t length) {
  struct ifaddrs *first;
  if (getifaddrs(&first) != 0) return -1;
  size_t used = 0;
  for (struct ifaddrs *one = first; one; one = one->ifa_next) {
    if (!one->ifa_addr || (one->ifa_flags & IFF_LOOPBACK) || !(one->ifa_flags & IFF_UP)) continue;
    const void *bytes;
    if (one->ifa_addr->sa_family == AF_INET)
      bytes = &((struct sockaddr_in *)one->ifa_addr)->sin_addr;
    else if (one->ifa_addr->sa_family == AF_INET6)
      bytes = &((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr;
    else
      continue;
    char line[INET6_ADDRSTRLEN + IF_NAMESIZE + 2], address[INET6_ADDRSTRLEN];
    if (!inet_ntop(one->ifa_addr->sa_family, bytes, address, sizeof address)) continue;
    int count = snprintf(line, sizeof line, "%s %s\n", one->ifa_name, address);
    if (count < 0 || (size_t)count >= sizeof line || used + (size_t)count > length) continue;
    memcpy(text + used, line, (size_t)count);
    used += (size_t)count;
  }
  freeifaddrs(first);
  return (ssize_t)used;
}

int csystem_is_dead_mount(const char *path) {
  struct statx unused;
  return statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_MODE, &unused) != 0 && errno == ENOTCONN;
}

uint64_t csystem_raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return UINT64_MAX;  // cannot fail with such arguments
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

int csystem_knows_passthrough(void) {
  const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) return -1;
  // FUSE_DEV_IOC_BACKING_OPEN, which a device without a mount is refused. A kernel without it knows no such request.
  const struct {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
  } nothing = {.fd = -1};
  const int result = ioctl(device, _IOW(229, 1, nothing), &nothing);
  const int known = result >= 0 || errno != ENOTTY;
  close(device);
  return known;
}

pid_t csystem_fork(void) { return fork(); }
