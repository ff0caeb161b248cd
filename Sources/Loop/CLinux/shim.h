// Linux's own interfaces that Swift's Glibc module leaves out, and macros that Swift cannot see.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/inotify.h>
#include <sys/timex.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/file.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netdb.h>
#include <termios.h>
#include <fcntl.h>
#include <stdlib.h>
#include <malloc.h>
#include <unistd.h>
#include <errno.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <stdint.h>
#include <string.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

static inline int meshpost_tty_exclusive(int fd) { return ioctl(fd, TIOCEXCL); }
static inline int meshpost_tty_shared(int fd) { return ioctl(fd, TIOCNXCL); }
// Sets or clears modem lines; -1 with errno where the device has none (a pseudo-terminal).
static inline int meshpost_tty_line(int fd, int line, int high) {
  return ioctl(fd, high ? TIOCMBIS : TIOCMBIC, &line);
}
// Bytes in a socket that its peer has not acknowledged (SIOCOUTQ); -1: the kernel cannot tell.
static inline int meshpost_unacknowledged(int fd) {
  int count = 0;
  return ioctl(fd, TIOCOUTQ, &count) == 0 ? count : -1;
}
// What a TCP connection has cost the line, by the kernel's count (TCP_INFO): payload both ways, with what was sent again, and the headers of all
// segments. `unsent`: what would still go out after a close. 0: the kernel cannot tell, or it is no TCP.
static inline uint64_t meshpost_line_bytes(int fd, uint64_t *unsent) {
  // The fields of <linux/tcp.h> by their places: that header and <netinet/tcp.h> exclude each other.
  union { uint8_t bytes[256]; uint32_t words[64]; uint64_t longs[32]; } info;
  socklen_t length = sizeof info;
  int domain = 0;
  socklen_t size = sizeof domain;
  *unsent = 0;
  memset(&info, 0, sizeof info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || length < 160) return 0;
  uint64_t segments = (uint64_t)info.words[34] + info.words[35];  // tcpi_segs_out, tcpi_segs_in
  if (segments == 0) return 0;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) domain = AF_INET;
  uint64_t header = (domain == AF_INET6 ? 40 : 20) + 20 + (info.bytes[5] & 1 ? 12 : 0);  // tcpi_options: TCPI_OPT_TIMESTAMPS
  // Before Linux 4.19 what was sent again is counted in segments only.
  uint64_t again = (uint64_t)info.words[25] * info.words[4];
  uint64_t out = length >= 208 ? info.longs[25] : info.longs[15] + again;  // tcpi_bytes_sent; tcpi_bytes_acked
  *unsent = info.words[36];  // tcpi_notsent_bytes
  // Options of the two opening segments are 8 bytes more.
  return out + info.longs[16] + segments * header + 16;  // tcpi_bytes_received
}
static inline int meshpost_tty_dtr(void) { return TIOCM_DTR; }
static inline int meshpost_tty_rts(void) { return TIOCM_RTS; }
static inline int meshpost_set_no_hangup(struct termios *t, int on) {
  if (on) t->c_cflag &= ~HUPCL; else t->c_cflag |= HUPCL;
  return 0;
}
static inline int meshpost_exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
static inline int meshpost_term_signal(int status) { return WIFSIGNALED(status) ? WTERMSIG(status) : 0; }
static inline int meshpost_pipe(int ends[2]) { return (int)syscall(SYS_pipe2, ends, O_CLOEXEC); }
// A descriptor that becomes readable when the process ends (Linux 5.3).
static inline int meshpost_pidfd_open(pid_t process) { return (int)syscall(SYS_pidfd_open, process, 0); }

// Moves what is there from a descriptor into a pipe, within the kernel: it is in the one or in the other, whoever is killed.
static inline ssize_t meshpost_splice(int from, int to, size_t most) {
  return syscall(SYS_splice, from, NULL, to, NULL, most, 2 /* SPLICE_F_NONBLOCK */);
}
// Copies what is in a pipe into another one, and takes nothing out.
static inline ssize_t meshpost_tee(int from, int to, size_t most) {
  return syscall(SYS_tee, from, to, most, 2 /* SPLICE_F_NONBLOCK */);
}
static inline int meshpost_set_pipe_size(int fd, int size) { return fcntl(fd, 1031 /* F_SETPIPE_SZ */, size); }
// 1: this process and those it starts can gain no privileges.
static inline int meshpost_no_new_privileges(void) { return (int)syscall(SYS_prctl, 39 /* PR_GET_NO_NEW_PRIVS */, 0, 0, 0, 0); }
// 1: this process may run programs as other users, and kill them (CAP_SETUID, CAP_SETGID and CAP_KILL).
static inline int meshpost_may_change_user(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
  unsigned int wanted = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_KILL;
  return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & wanted) == wanted;
}
// A datagram to a service manager, with descriptors (at most 4); 0 or an errno.
static inline int meshpost_send_descriptors(
    int socket, const struct sockaddr_un *to, socklen_t length, const void *text, size_t size, const int *fds, int count) {
  union { struct cmsghdr header; char room[CMSG_SPACE(4 * sizeof(int))]; } control;
  struct iovec body = {.iov_base = (void *)text, .iov_len = size};
  struct msghdr message = {.msg_name = (void *)to, .msg_namelen = length, .msg_iov = &body, .msg_iovlen = 1};
  if (count > 4) return E2BIG;
  if (count > 0) {
    memset(&control, 0, sizeof control);
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(part), fds, count * sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

// Declared by glibc only with feature macros that would tear this module apart from Swift's Glibc.
extern int posix_openpt(int flags);
extern int grantpt(int fd);
extern int unlockpt(int fd);
extern int ptsname_r(int fd, char *name, size_t size);
extern int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);

// A socket on which the kernel tells of changes to links, addresses and routes; -1 where there is none to be had.
static inline int meshpost_open_route_watch(void) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd < 0) return -1;
  struct sockaddr_nl address = {.nl_family = AF_NETLINK,
      .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE};
  if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  close(fd);
  return -1;
}
