/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

#include "kernels/softgpu/fault.h"
#include "libclient/support/lock.h"

static const int fault_signals[] = { SIGSEGV, SIGBUS };

static struct mm_lock install_lock = MM_LOCK_INIT;
/* The program's handlers; written under install_lock before the handlers here are installed. */
static struct sigaction previous_handlers[2];

/* Initial-exec: the handler must not allocate when a thread first accesses it. */
static __thread sigjmp_buf *fault_guard __attribute__((tls_model("initial-exec")));

/* Called before the jump, if not NULL. */
static __thread void (*fault_first)(void) __attribute__((tls_model("initial-exec")));

static void fault_pass_on(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *old = &previous_handlers[sig == SIGBUS];

	if (old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(sig, info, context);
	} else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
		old->sa_handler(sig);
	} else {
		/*
		 * The access runs again when the handler returns, and then kills the process with
		 * the right core dump.
		 */
		signal(sig, SIG_DFL);
		if (info->si_code <= 0)
			raise(sig);
	}
}

/*
 * Not instrumented: TSan takes a kernel's own stack for another thread, and would report a race on
 * the thread-local variables.
 */
__attribute__((no_sanitize("thread"))) static void on_fault(int sig, siginfo_t *info, void *context)
{
	/* A si_code <= 0 means that a process sent the signal, and no access raised it. */
	if (fault_guard && info->si_code > 0) {
		if (fault_first)
			fault_first();
		siglongjmp(*fault_guard, 1);
	}
	fault_pass_on(sig, info, context);
}

void sg_fault_install(void)
{
	struct sigaction now, ours = { .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };

	ours.sa_sigaction = on_fault;
	sigemptyset(&ours.sa_mask);
	mm_lock_take(&install_lock);
	for (size_t i = 0; i < sizeof(fault_signals) / sizeof(fault_signals[0]); i++) {
		if (sigaction(fault_signals[i], NULL, &now) < 0)
			continue;
		if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
			continue;
		previous_handlers[i] = now;
		sigaction(fault_signals[i], &ours, NULL);
	}
	mm_lock_give(&install_lock);
}

void sg_fault_first(void (*fn)(void))
{
	fault_first = fn;
}

bool sg_guarded(void (*fn)(void *arg), void *arg)
{
	sigjmp_buf here;

	/* There is no signal mask to restore, because of SA_NODEFER and an empty mask. */
	if (sigsetjmp(here, 0)) {
		fault_guard = NULL;
		return false;
	}
	fault_guard = &here;
	fn(arg);
	fault_guard = NULL;
	return true;
}
