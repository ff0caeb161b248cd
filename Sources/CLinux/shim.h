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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

static inline int meshpost_tty_exclusive(int fd) { return ioctl(fd, TIOCEXCL); }
static inline int meshpost_tty_shared(int fd) { return ioctl(fd, TIOCNXCL); }
// Sets or clears modem lines; -1 with errno where the device has none (a pseudo-terminal).
static inline int meshpost_tty_line(int fd, int line, int high) {
  return ioctl(fd, high ? TIOCMBIS : TIOCMBIC, &line);
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

// Declared by glibc only with feature macros that would tear this module apart from Swift's Glibc.
extern int posix_openpt(int flags);
extern int grantpt(int fd);
extern int unlockpt(int fd);
extern char *ptsname(int fd);
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
