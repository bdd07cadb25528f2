/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/pidfd.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libclient/support/fault.h"

#ifndef SO_PEERPIDFD /* since Linux 6.5; absent from Debian 12's headers */
#define SO_PEERPIDFD 77
#endif

static int pidfd_of_pid(int fd, int *ret_pidfd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int pidfd;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
	if (pidfd < 0)
		return -errno;
	*ret_pidfd = pidfd;
	return 0;
}

int mm_pidfd_of_peer(int fd, int *ret_pidfd)
{
	int pidfd;
	socklen_t len = sizeof(pidfd);

	if (mm_fault("pidfd.open"))
		return -EMFILE;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) < 0)
		return errno == ENOPROTOOPT ? pidfd_of_pid(fd, ret_pidfd) : -errno;
	*ret_pidfd = pidfd;
	return 0;
}

int mm_pidfd_kill(int pidfd)
{
	if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
		return -errno;
	return 0;
}
