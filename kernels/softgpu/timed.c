/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/softgpu/timed.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/settings.h"
#include "kernels/softgpu/written.h"
#include "kernels/timing/cost.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define TIMELINE_MAGIC UINT64_C(0x324c54474d4d) /* "MMGTL2" */
#define DILATION_MAX   1e6
#define AHEAD_MAX_NS   (600 * MM_NS_PER_S) /* a reservation further ahead than this is ignored */
#define SPIN_NS        UINT64_C(60000)     /* by how much a sleep may end late */
#define CALL_DEBT_NS   UINT64_C(20000)     /* shorter calls are waited for once they add up to it */
#define STOP_LOOK_NS   (10 * MM_NS_PER_MS)
/* Device time: so much of a thread's late waking is not counted against the work that follows. */
#define LATE_MAX_NS (5 * MM_NS_PER_MS)
/* Device time after waking: work that follows later was decided later. */
#define LATE_COUNTS_NS (10 * MM_NS_PER_MS)

#define SPINNERS      4
#define SLOWED_ROUNDS 256
#define COPIES        1024
#define COPY_MIN_NS   UINT64_C(1000) /* shorter copies take no bandwidth worth counting */

struct copy {
	uint64_t start_ns, end_ns; /* atomic; a start of 0: the entry is being written */
};

/* The last copies of one direction, which follow each other. */
struct copy_log {
	uint64_t n;
	struct copy copies[COPIES];
};

/* The file. All fields are atomic, and none is trusted. */
struct timeline {
	uint64_t magic;
	uint64_t busy_ns[SG_ENGINES];
	uint64_t spins_until_ns[SPINNERS]; /* host time; after it the place is free */
	uint64_t effects, late, late_total_ns, late_max_ns;
	uint64_t kernels, reserved_ns[SG_ENGINES], bytes[SG_ENGINES];
	struct copy_log in, out;
	struct sg_written words[SG_WRITTEN_WORDS];
};

static struct timeline *timelines[SG_DEVICES_MAX]; /* by ordinal of the device */

static uint64_t shared_get(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static void shared_add(uint64_t *to, uint64_t n)
{
	__atomic_fetch_add(to, n, __ATOMIC_RELAXED);
}

/* ---- what the environment asks for ---- */

static CUresult setting_dilation(const char *text, double *ret_dilation)
{
	char *end;

	*ret_dilation = strtod(text, &end);
	/* Decimal only: strtod() would take "inf" and hexadecimal too. */
	if (strspn(text, "0123456789.e") != strlen(text) || *end || !isfinite(*ret_dilation) ||
	    *ret_dilation < 1 || *ret_dilation > DILATION_MAX)
		return sg_error(CUDA_ERROR_INVALID_VALUE,
				"MM_SOFTGPU_DILATION=%s: give a number from 1 to %g", text,
				DILATION_MAX);
	return CUDA_SUCCESS;
}

CUresult sg_timed_settings(struct sg_timing *ret_timing, bool *ret_has_dilation)
{
	const char *profile = secure_getenv("MM_SOFTGPU_PROFILE");
	const char *dilation = secure_getenv("MM_SOFTGPU_DILATION");
	struct sg_timing timing = { .dilation = 1 };
	char err[MM_PROFILE_ERROR_BYTES] = "";

	*ret_has_dilation = dilation && *dilation;
	if (*ret_has_dilation)
		SG_TRY(setting_dilation(dilation, &timing.dilation));
	if (profile && *profile) {
		timing.on = true;
		if (mm_profile_load(profile, &timing.profile, err, sizeof(err)) < 0)
			return sg_error(CUDA_ERROR_INVALID_VALUE, "MM_SOFTGPU_PROFILE: %s", err);
	}
	*ret_timing = timing;
	return CUDA_SUCCESS;
}

/* ---- the file ---- */

/*
 * Users that may enter the directory may write the timeline: time passes for read-only devices,
 * too.
 */
static int timeline_open(int dir_fd, mode_t dir_mode, bool *ret_new)
{
	mode_t mode = 0600 | (dir_mode & 0011) << 1 | (dir_mode & 0011) << 2;
	int fd = openat(dir_fd, "timeline", O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	*ret_new = false;
	if (fd < 0 && errno == ENOENT) {
		fd = openat(dir_fd, "timeline", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		*ret_new = fd >= 0;
		if (fd >= 0)
			fchmod(fd, mode);
	}
	return fd < 0 ? -errno : fd;
}

int sg_timed_attach(unsigned int device, int dir_fd, mode_t dir_mode, bool anew)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct timeline *t;
	struct stat st;
	bool is_new;

	fd = timeline_open(dir_fd, dir_mode, &is_new);
	if (fd < 0)
		return fd;
	if (anew && ftruncate(fd, 0) < 0)
		return -errno;
	if ((anew || is_new) && ftruncate(fd, (off_t)sizeof(*t)) < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(*t))
		return -EPROTO;
	t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (t == MAP_FAILED)
		return -errno;
	if (anew || is_new)
		t->magic = TIMELINE_MAGIC;
	timelines[device] = t;
	return 0;
}

void sg_timed_detach(unsigned int device)
{
	if (timelines[device])
		munmap(timelines[device], sizeof(struct timeline));
	timelines[device] = NULL;
}

/* ---- clocks ---- */

static uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * MM_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t host_to_device_ns(const struct sg_timing *timing, uint64_t host_ns)
{
	if (host_ns <= timing->epoch_ns)
		return 1;
	return (uint64_t)((double)(host_ns - timing->epoch_ns) / timing->dilation) + 1;
}

static uint64_t device_to_host_ns(const struct sg_timing *timing, uint64_t device_ns)
{
	return timing->epoch_ns + (uint64_t)ceil((double)device_ns * timing->dilation);
}

uint64_t sg_timed_now(unsigned int device)
{
	return host_to_device_ns(&sg_device_info(device)->timing, clock_now_ns());
}

/* ---- reserving ---- */

/* Return: when @engine is free, as far as the file can be trusted. */
static uint64_t engine_free_from(const struct timeline *t, enum sg_engine engine, uint64_t from_ns)
{
	uint64_t busy = shared_get(&t->busy_ns[engine]);

	return busy > from_ns && busy - from_ns > AHEAD_MAX_NS ? 0 : busy;
}

static bool engine_take(struct timeline *t, enum sg_engine engine, uint64_t seen_ns,
			uint64_t end_ns)
{
	return __atomic_compare_exchange_n(&t->busy_ns[engine], &seen_ns, end_ns, false,
					   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

uint64_t sg_timed_reserve(unsigned int device, enum sg_engine engine, uint64_t from_ns, uint64_t ns)
{
	struct timeline *t = timelines[device];
	uint64_t seen, start;

	do {
		seen = shared_get(&t->busy_ns[engine]);
		start = MM_MAX(from_ns, engine_free_from(t, engine, from_ns));
	} while (!engine_take(t, engine, seen, start + ns));
	shared_add(&t->reserved_ns[engine], ns);
	return start;
}

/*
 * Return: the time of a copy that takes @alone_ns alone, while the other direction is busy for
 * @both_ns.
 */
static uint64_t copy_ns_with_loss(uint64_t alone_ns, uint64_t both_ns, double loss)
{
	double done = (double)both_ns *
		      (1 - loss); /* part of the copy that is done when the other direction ends */

	if (done >= (double)alone_ns)
		return (uint64_t)((double)alone_ns / (1 - loss));
	return both_ns + alone_ns - (uint64_t)done;
}

static void copy_add(struct copy_log *log, uint64_t start_ns, uint64_t end_ns)
{
	uint64_t n = __atomic_fetch_add(&log->n, 1, __ATOMIC_RELAXED);
	struct copy *c = &log->copies[n % COPIES];

	__atomic_store_n(&c->start_ns, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&c->end_ns, end_ns, __ATOMIC_RELEASE);
	__atomic_store_n(&c->start_ns, start_ns, __ATOMIC_RELEASE);
}

uint64_t sg_timed_reserve_copy(unsigned int device, enum sg_engine engine, uint64_t from_ns,
			       uint64_t length_bytes, uint64_t *ret_end_ns)
{
	const struct mm_profile *p = &sg_device_info(device)->timing.profile;
	const enum sg_engine other = engine == SG_H2D ? SG_D2H : SG_H2D;
	uint64_t alone =
		mm_cost_copy_ns(p, engine == SG_H2D ? MM_LINK_H2D : MM_LINK_D2H, length_bytes, 0);
	struct timeline *t = timelines[device];
	uint64_t seen, start, busy, ns;

	do {
		seen = shared_get(&t->busy_ns[engine]);
		start = MM_MAX(from_ns, engine_free_from(t, engine, from_ns));
		busy = engine_free_from(t, other, start);
		ns = copy_ns_with_loss(alone, busy > start ? busy - start : 0, p->duplex_loss);
	} while (!engine_take(t, engine, seen, start + ns));
	shared_add(&t->reserved_ns[engine], ns);
	shared_add(&t->bytes[engine], length_bytes);
	if (ns >= COPY_MIN_NS)
		copy_add(engine == SG_H2D ? &t->in : &t->out, start, start + ns);
	*ret_end_ns = start + ns;
	return start;
}

/* ---- kernels beside copies ---- */

struct copy_span {
	uint64_t start_ns, end_ns;
};

/* Gets the parts of a direction's copies within [@from_ns, @end_ns), the last one first. */
static uint32_t copies_within(const struct copy_log *log, uint64_t from_ns, uint64_t end_ns,
			      struct copy_span *ret_spans)
{
	uint64_t n = __atomic_load_n(&log->n, __ATOMIC_ACQUIRE);
	uint32_t found = 0;

	for (uint64_t i = 0; i < MM_MIN(n, COPIES); i++) {
		const struct copy *c = &log->copies[(n - 1 - i) % COPIES];
		uint64_t start = __atomic_load_n(&c->start_ns, __ATOMIC_ACQUIRE);
		uint64_t end = __atomic_load_n(&c->end_ns, __ATOMIC_ACQUIRE);

		if (!start || __atomic_load_n(&c->start_ns, __ATOMIC_RELAXED) != start)
			continue;
		/* Entries are in order, except for those that several processes logged at once. */
		if (end + MM_NS_PER_MS < from_ns)
			break;
		start = MM_MAX(start, from_ns);
		end = MM_MIN(end, end_ns);
		if (start < end)
			ret_spans[found++] = (struct copy_span){ start, end };
	}
	return found;
}

static uint64_t spans_sum_ns(const struct copy_span *spans, uint32_t n, uint64_t max_ns)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += spans[i].end_ns - spans[i].start_ns;
	return MM_MIN(sum, max_ns);
}

/* Return: the time that is in spans of both lists, each of which has the last one first. */
static uint64_t spans_both_ns(const struct copy_span *a, uint32_t n_a, const struct copy_span *b,
			      uint32_t n_b)
{
	uint64_t sum = 0;

	while (n_a && n_b) {
		uint64_t start = MM_MAX(a->start_ns, b->start_ns);
		uint64_t end = MM_MIN(a->end_ns, b->end_ns);

		sum += end > start ? end - start : 0;
		if (a->start_ns >= b->start_ns) {
			a++;
			n_a--;
		} else {
			b++;
			n_b--;
		}
	}
	return sum;
}

/* Return: the part of a time that kernels lose to copies which are beside them all the time. */
static double part_lost(const struct mm_profile *p, double in, double out)
{
	return 1 - 1 / mm_cost_slowdown(p, in, out);
}

/* Return: the time of [@from_ns, @end_ns) that copies take from kernels which run through it. */
static double copies_take_ns(unsigned int device, uint64_t from_ns, uint64_t end_ns)
{
	const struct mm_profile *p = &sg_device_info(device)->timing.profile;
	const struct timeline *t = timelines[device];
	struct copy_span in[COPIES], out[COPIES];
	uint32_t n_in = copies_within(&t->in, from_ns, end_ns, in);
	uint32_t n_out = copies_within(&t->out, from_ns, end_ns, out);
	uint64_t all = end_ns - from_ns;
	uint64_t in_ns = spans_sum_ns(in, n_in, all), out_ns = spans_sum_ns(out, n_out, all);
	uint64_t both = MM_MIN(spans_both_ns(in, n_in, out, n_out), MM_MIN(in_ns, out_ns));

	return part_lost(p, 1, 0) * (double)(in_ns - both) +
	       part_lost(p, 0, 1) * (double)(out_ns - both) + part_lost(p, 1, 1) * (double)both;
}

uint64_t sg_timed_slowed(unsigned int device, uint64_t from_ns, uint64_t end_ns,
			 uint64_t compute_ns)
{
	double part = (double)compute_ns / (double)MM_MAX(end_ns - from_ns, 1);
	uint64_t slowed = end_ns, before;
	unsigned int rounds = 0;

	/*
	 * With copies beside it, a kernel's time of T does the work of T / slowdown: the rest is
	 * done afterwards, where there may be copies, too. Each round adds less. Other streams that
	 * had the device in between bear their part.
	 */
	do {
		before = slowed;
		slowed = end_ns +
			 (uint64_t)(MM_MIN(part, 1.0) * copies_take_ns(device, from_ns, before));
	} while (slowed > before && ++rounds < SLOWED_ROUNDS);
	return slowed;
}

bool sg_timed_may_slow(unsigned int device, uint64_t from_ns)
{
	const struct timeline *t = timelines[device];
	uint64_t busy = MM_MAX(shared_get(&t->busy_ns[SG_H2D]), shared_get(&t->busy_ns[SG_D2H]));

	return busy + MM_NS_PER_MS > from_ns;
}

void sg_timed_extend(unsigned int device, enum sg_engine engine, uint64_t end_ns, uint64_t by_ns)
{
	struct timeline *t = timelines[device];
	uint64_t seen;

	do {
		seen = shared_get(&t->busy_ns[engine]);
	} while (!engine_take(t, engine, seen, MM_MAX(seen, end_ns) + by_ns));
	shared_add(&t->reserved_ns[engine], by_ns);
}

/* ---- waiting ---- */

/*
 * Only one thread for two processors may spin. A process that is killed while it spins leaves a
 * place that frees itself.
 */
static uint64_t *spinner_place(struct timeline *t, uint64_t now_ns, uint64_t until_ns)
{
	static unsigned int places; /* atomic */
	unsigned int n = __atomic_load_n(&places, __ATOMIC_RELAXED);

	if (!n) {
		long cpus = sysconf(_SC_NPROCESSORS_ONLN);

		n = cpus < 4 ? 1 : (unsigned int)MM_MIN(cpus / 2, SPINNERS);
		__atomic_store_n(&places, n, __ATOMIC_RELAXED);
	}
	for (unsigned int i = 0; i < n; i++) {
		uint64_t seen = shared_get(&t->spins_until_ns[i]);

		if ((seen <= now_ns || seen - now_ns > 2 * SPIN_NS) &&
		    __atomic_compare_exchange_n(&t->spins_until_ns[i], &seen, until_ns, false,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return &t->spins_until_ns[i];
	}
	return NULL;
}

static void clock_sleep_until(uint64_t host_ns)
{
	const struct timespec until = { .tv_sec = (time_t)(host_ns / MM_NS_PER_S),
					.tv_nsec = (long)(host_ns % MM_NS_PER_S) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/*
 * Spins for the last stretch. Without a place to spin the thread sleeps, and is as late as the
 * kernel's timer.
 */
static void time_approach(struct timeline *t, uint64_t until_ns)
{
	uint64_t now = clock_now_ns(), *place;

	if (now >= until_ns)
		return;
	place = spinner_place(t, now, until_ns);
	if (!place) {
		clock_sleep_until(until_ns);
		return;
	}
	while (clock_now_ns() < until_ns)
		cpu_relax();
	__atomic_store_n(place, 0, __ATOMIC_RELAXED);
}

static bool wait_is_stopped(const bool *stop)
{
	return stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE);
}

static void clock_wait(struct timeline *t, uint64_t until_ns, const bool *stop)
{
	int slack = prctl(PR_GET_TIMERSLACK);
	uint64_t now;

	prctl(PR_SET_TIMERSLACK, 1);
	while ((now = clock_now_ns()) + SPIN_NS < until_ns && !wait_is_stopped(stop))
		clock_sleep_until(MM_MIN(until_ns - SPIN_NS, now + STOP_LOOK_NS));
	if (!wait_is_stopped(stop))
		time_approach(t, until_ns);
	if (slack > 1)
		prctl(PR_SET_TIMERSLACK, slack);
}

static void lateness_count(struct timeline *t, uint64_t late_ns)
{
	uint64_t max = shared_get(&t->late_max_ns);

	shared_add(&t->effects, 1);
	shared_add(&t->late_total_ns, late_ns);
	if (late_ns > MM_SOFTGPU_LATE_NS)
		shared_add(&t->late, 1);
	while (late_ns > max && !__atomic_compare_exchange_n(&t->late_max_ns, &max, late_ns, false,
							     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

void sg_timed_until(unsigned int device, uint64_t due_ns, const bool *stop, bool effect)
{
	struct timeline *t = timelines[device];
	uint64_t due = device_to_host_ns(&sg_device_info(device)->timing, due_ns),
		 now = clock_now_ns();

	if (now < due) {
		clock_wait(t, due, stop);
		now = clock_now_ns();
	}
	if (effect && !wait_is_stopped(stop))
		lateness_count(t, now > due ? now - due : 0);
}

/* ---- when a thread could have put in its work ---- */

static __thread struct {
	uint64_t ready_ns;      /* when the thread can submit again: launches take time */
	uint64_t late_ns;       /* how late the thread woke after its last wait */
	uint64_t late_until_ns; /* until then the lateness counts */
	bool reported;          /* ready_ns was set by mm_softgpu_act_at() */
} this_thread __attribute__((tls_model("initial-exec")));

MM_EXPORT void mm_softgpu_act_at(uint64_t ns)
{
	this_thread.reported = ns != 0;
	this_thread.ready_ns = ns;
}

void sg_timed_woke(unsigned int device, uint64_t end_ns)
{
	uint64_t now = sg_timed_now(device);

	this_thread.late_ns = now > end_ns ? MM_MIN(now - end_ns, LATE_MAX_NS) : 0;
	this_thread.late_until_ns = now + LATE_COUNTS_NS;
}

uint64_t sg_timed_submit(unsigned int device)
{
	uint64_t launch = sg_device_info(device)->timing.profile.launch_ns;
	uint64_t now = sg_timed_now(device), could = now;

	if (this_thread.reported) {
		this_thread.ready_ns += launch;
		return MM_MIN(this_thread.ready_ns, now + launch);
	}
	if (now < this_thread.late_until_ns && this_thread.late_until_ns - now <= LATE_COUNTS_NS)
		could -= MM_MIN(this_thread.late_ns, could);
	/* A time so far ahead belongs to another device, or to one that was made anew. */
	if (this_thread.ready_ns > now + AHEAD_MAX_NS)
		this_thread.ready_ns = 0;
	this_thread.ready_ns = MM_MAX(this_thread.ready_ns, could) + launch;
	return this_thread.ready_ns;
}

void sg_timed_call(unsigned int device, uint64_t ns)
{
	const struct sg_timing *timing = &sg_device_info(device)->timing;
	uint64_t now, end;

	if (!timing->on || !ns)
		return;
	now = clock_now_ns();
	end = sg_timed_reserve(device, SG_DRIVER, host_to_device_ns(timing, now), ns) + ns;
	if (device_to_host_ns(timing, end) > now + CALL_DEBT_NS)
		sg_timed_until(device, end, NULL, false);
}

/* ---- the report ---- */

void sg_timed_count_kernel(unsigned int device)
{
	shared_add(&timelines[device]->kernels, 1);
}

struct sg_written *sg_timed_words(unsigned int device)
{
	return timelines[device]->words;
}

MM_EXPORT int mm_softgpu_stats(int device, struct mm_softgpu_stats *ret_stats, uint64_t bytes)
{
	struct mm_softgpu_stats s = { 0 };
	const struct sg_timing *timing;
	const struct timeline *t;

	if (sg_enter(__func__, SG_INITIALISED) || !ret_stats || device < 0 ||
	    (unsigned int)device >= sg_device_count())
		return -EINVAL;
	timing = &sg_device_info((unsigned int)device)->timing;
	t = timelines[device];
	if (timing->on) {
		s = (struct mm_softgpu_stats){
			.timed = 1,
			.dilation = timing->dilation,
			.now_ns = sg_timed_now((unsigned int)device),
			.effects = shared_get(&t->effects),
			.late = shared_get(&t->late),
			.late_total_ns = shared_get(&t->late_total_ns),
			.late_max_ns = shared_get(&t->late_max_ns),
			.kernels = shared_get(&t->kernels),
			.compute_ns = shared_get(&t->reserved_ns[SG_COMPUTE]),
			.h2d_ns = shared_get(&t->reserved_ns[SG_H2D]),
			.d2h_ns = shared_get(&t->reserved_ns[SG_D2H]),
			.h2d_bytes = shared_get(&t->bytes[SG_H2D]),
			.d2h_bytes = shared_get(&t->bytes[SG_D2H]),
		};
		memcpy(s.profile, timing->profile.name, sizeof(s.profile));
	}
	memcpy(ret_stats, &s, MM_MIN(bytes, sizeof(s)));
	return 0;
}
