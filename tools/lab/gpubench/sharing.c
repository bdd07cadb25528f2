/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharing - what those who share a device cost each other
 *
 * Concept:   Kernels that are bound by memory run alone, and beside copies of another process in
 *            one direction or both: by how much they are longer is what the controller charges for
 *            streaming (its knob link-slows). Steps of such kernels run alone, beside another
 *            process that computes all the time, and beside one whose stream stalls between its
 *            steps: which part of the stalls others do not make use of is the knob rho.
 */
#include <errno.h>
#include <inttypes.h>

#include "libclient/base/base.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/groups.h"
#include "tools/lab/gpubench/neighbour.h"

#define BESIDE_S      0.02 /* kernels beside copies, alone */
#define COPIES_MARGIN 4u   /* copies last so many times as long, at first */
#define MARGIN_MAX    32u
#define COPIES_MAX    400u /* of a direction: a driver's queue holds them all */
#define PIECE_MIN     (UINT64_C(1) << 20)
#define STEP_S        0.004 /* several times the slice that a driver gives to a context */
#define LAUNCHES_MAX  4096u
#define STEPS         40u
#define STEPS_QUICK   16u
#define STEPS_MAX     1000u
#define REHEARSED     2u /* launches of a rehearsal, whose times mean nothing */

struct sharing {
	struct mm_gpu_bed bed;
	struct mm_gpu_load load;
	struct mm_gpu_host host;
	struct mm_gpu_range range;
	struct mm_gpu_neighbour neighbour;
	CUevent ends[2]; /* of the last steps */
	/* of a case */
	uint32_t launches, steps, margin;
	double in_bps, out_bps;
};

static bool has_times(const struct sharing *s)
{
	return !s->bed.dev.bench->rehearsal || s->bed.dev.bench->timed;
}

static uint32_t launches_for(const struct sharing *s, double seconds)
{
	const double n = seconds / s->load.launch_s;

	if (!has_times(s))
		return REHEARSED;
	return n < 1 ? 1 : n > LAUNCHES_MAX ? LAUNCHES_MAX : (uint32_t)n;
}

/* ---- kernels beside copies ---- */

/* The sides, and the indices of their values: the directions are bits. */
enum { ALONE, IN = 1, OUT = 2, BOTH = IN | OUT };

static uint64_t bytes_to_copy(const struct sharing *s, double bps)
{
	const double seconds = s->launches * s->load.launch_s;

	return has_times(s) ? (uint64_t)(bps * seconds * s->margin) + 1 : s->host.bytes;
}

static int copies_begin(struct sharing *s, uint32_t which)
{
	struct mm_gpu_order order = { .deed = MM_GPU_COPIES };

	if (which & IN)
		order.in_bytes = bytes_to_copy(s, s->in_bps);
	if (which & OUT)
		order.out_bytes = bytes_to_copy(s, s->out_bps);
	order.piece_bytes = MM_MAX(order.in_bytes, order.out_bytes) / COPIES_MAX;
	order.piece_bytes = mm_round_up(MM_MAX(order.piece_bytes, PIECE_MIN), PIECE_MIN);
	if (!has_times(s))
		order.piece_bytes = s->host.bytes;
	return mm_gpu_neighbour_begin(&s->neighbour, &order);
}

static int kernels_undo(void *state, uint32_t which)
{
	struct sharing *s = state;

	(void)which;
	return mm_gpu_neighbour_end(&s->neighbour);
}

static int kernels_run_once(struct sharing *s, uint32_t which, double *ret_s, bool *ret_over)
{
	double launch_s = 0;
	int r = which == ALONE ? 0 : copies_begin(s, which);

	if (!r)
		r = mm_gpu_load_time(&s->load, s->launches, &launch_s);
	*ret_over = which != ALONE && has_times(s) && mm_gpu_neighbour_is_over(&s->neighbour);
	*ret_s = launch_s * s->launches;
	return r;
}

/* Runs the kernels again beside more copies, if the copies were over before the kernels were. */
static int kernels_run_beside(void *state, uint32_t which, double *value)
{
	struct sharing *s = state;
	bool over;
	int r = kernels_run_once(s, which, &value[which], &over);

	while (!r && over && s->margin < MARGIN_MAX) {
		s->margin *= 2;
		r = mm_gpu_neighbour_end(&s->neighbour);
		if (!r)
			r = kernels_run_once(s, which, &value[which], &over);
	}
	if (!r && over)
		r = mm_gpu_fail(s->bed.dev.bench, -ETIME,
				"the copies were over before the kernels beside them were");
	return r;
}

/* Times a bare copy of all of the host memory in one direction. */
static int copy_rate(struct sharing *s, bool out, double *ret_bps)
{
	struct mm_gpu_dev *dev = &s->bed.dev;
	double seconds = 0;
	int r = mm_gpu_time_begin(dev);

	if (!r)
		r = out ? MM_GPU_CALL(dev, cuMemcpyDtoHAsync, s->host.base, s->range.va,
				      s->host.bytes, dev->stream)
			: MM_GPU_CALL(dev, cuMemcpyHtoDAsync, s->range.va, s->host.base,
				      s->host.bytes, dev->stream);
	if (!r)
		r = mm_gpu_time_end(dev, &seconds);
	if (!r && has_times(s) && seconds <= 0)
		r = mm_gpu_fail(dev->bench, -ERANGE, "a copy took no time");
	*ret_bps = seconds > 0 ? (double)s->host.bytes / seconds : 0;
	return r;
}

static int kernels_prepare(void *state, const uint32_t *at)
{
	struct sharing *s = state;
	int r = copy_rate(s, false, &s->in_bps);

	(void)at;
	s->margin = COPIES_MARGIN;
	s->launches = launches_for(s, BESIDE_S);
	return r ? r : copy_rate(s, true, &s->out_bps);
}

static json_t *slows_more(const void *state, const struct mm_gpu_row *row,
			  const struct mm_summary *values)
{
	const double ratio = values[row->figure].median / values[row->reference].median;

	(void)state;
	return json_pack("{s:f}", "link_slows_permille", (ratio - 1) * 1000);
}

static const struct mm_gpu_param kernels_more[] = {
	MM_GPU_PARAM("h2d_bytes_per_s", struct sharing, in_bps),
	MM_GPU_PARAM("d2h_bytes_per_s", struct sharing, out_bps),
	{ 0 },
};

static const struct mm_gpu_side kernels_sides[] = {
	{ "kernels alone", ALONE, .run = kernels_run_beside },
	{ "kernels beside copies in", IN, .run = kernels_run_beside, .undo = kernels_undo },
	{ "kernels beside copies out", OUT, .run = kernels_run_beside, .undo = kernels_undo },
	{ "kernels beside both", BOTH, .run = kernels_run_beside, .undo = kernels_undo },
};

#define KERNELS_ALONE "the same kernels alone"

static const struct mm_gpu_row kernels_rows[] = {
	{ "link_slows_in", "kernels while another process copies to the device", MM_GPU_SECONDS, IN,
	  .reference = ALONE, .reference_name = KERNELS_ALONE, .more = kernels_more,
	  .computed = slows_more },
	{ "link_slows_out", "kernels while another process copies to the host", MM_GPU_SECONDS, OUT,
	  .reference = ALONE, .reference_name = KERNELS_ALONE, .more = kernels_more,
	  .computed = slows_more },
	{ "link_slows_both", "kernels while another process copies both ways", MM_GPU_SECONDS, BOTH,
	  .reference = ALONE, .reference_name = KERNELS_ALONE, .more = kernels_more,
	  .computed = slows_more },
};

static const struct mm_gpu_measurement sharing_link = {
	.name = "link_slows",
	MM_GPU_STATEMENT(kernels_sides, kernels_rows),
	.warm_up = 1,
	.prepare = kernels_prepare,
};

/* ---- steps beside another's steps ---- */

/* A step of ours; a step of the neighbour's meanwhile. Each counts from its side on. */
enum { STEP, THEIRS = STEP + 3 };

/* The sides. */
enum { BY_ITSELF, BESIDE_COMPUTING, BESIDE_STALLED };

/* True if the neighbour has completed @n steps since it had completed @since. */
static bool neighbour_is_done(const struct sharing *s, uint64_t since, uint32_t n)
{
	return mm_gpu_neighbour_steps(&s->neighbour) - since >= n ||
	       mm_gpu_neighbour_is_over(&s->neighbour);
}

/* Waits for the step before the last one, where @n were enqueued, and counts it. */
static int step_await(struct sharing *s, uint32_t n)
{
	int r = MM_GPU_CALL(&s->bed.dev, cuEventSynchronize, s->ends[n % 2]);

	if (!r)
		mm_gpu_neighbour_count(&s->neighbour);
	return r;
}

/*
 * Runs @least steps or more, until the neighbour has completed @theirs. Two are in flight, so that
 * a host that is late does not leave the device without work.
 */
static int steps_window(struct sharing *s, uint32_t least, uint32_t theirs, double *ret_s,
			uint32_t *ret_n)
{
	const uint64_t since = mm_gpu_neighbour_steps(&s->neighbour);
	struct mm_gpu_dev *dev = &s->bed.dev;
	int r = mm_gpu_time_begin(dev);
	uint32_t n = 0;

	s->load.repeats = s->launches;
	while (!r && n < STEPS_MAX && (n < least || !neighbour_is_done(s, since, theirs))) {
		if (n >= 2)
			r = step_await(s, n);
		if (!r)
			r = mm_gpu_load_run(&s->load);
		if (!r)
			r = MM_GPU_CALL(dev, cuEventRecord, s->ends[n % 2], dev->stream);
		n++;
	}
	*ret_n = n;
	if (!r)
		r = mm_gpu_time_end(dev, ret_s);
	for (uint32_t i = 0; !r && i < MM_MIN(n, 2); i++)
		mm_gpu_neighbour_count(&s->neighbour);
	return r;
}

static int steps_run(void *state, uint32_t which, double *value)
{
	struct sharing *s = state;
	const struct mm_gpu_order order = { .deed = which == BESIDE_COMPUTING
							    ? MM_GPU_STEPS
							    : MM_GPU_STALLED_STEPS,
					    .launches = s->launches };
	const uint32_t theirs = which == BESIDE_COMPUTING ? s->steps : s->steps / 4;
	double took_s = 0;
	uint64_t since;
	uint32_t n;
	int r;

	if (which == BY_ITSELF) {
		r = steps_window(s, s->steps, 0, &took_s, &n);
		value[STEP] = took_s / n;
		return r;
	}
	r = mm_gpu_neighbour_begin(&s->neighbour, &order);
	/* The window begins, and ends, when the neighbour has completed a step. */
	if (!r)
		r = steps_window(s, 1, 2, &took_s, &n);
	since = mm_gpu_neighbour_steps(&s->neighbour);
	if (!r)
		r = steps_window(s, 1, theirs, &took_s, &n);
	since = mm_gpu_neighbour_steps(&s->neighbour) - since;
	value[STEP + which] = took_s / n;
	value[THEIRS + which] = took_s / (double)MM_MAX(since, 1);
	return r;
}

static int steps_prepare(void *state, const uint32_t *at)
{
	struct sharing *s = state;

	(void)at;
	s->launches = launches_for(s, STEP_S);
	s->steps = s->bed.dev.bench->opts.quick ? STEPS_QUICK : STEPS;
	return 0;
}

/*
 * The credit is the part of the device's time, left by the neighbour when it stalls, that this
 * process gained. The controller counts half of it: whoever could use it may be stalled, too.
 */
static json_t *stall_more(const void *state, const struct mm_gpu_row *row,
			  const struct mm_summary *values)
{
	const double alone = values[STEP + BY_ITSELF].median;
	const double gained = alone / values[STEP + BESIDE_STALLED].median -
			      alone / values[STEP + BESIDE_COMPUTING].median;
	const double left = alone / values[THEIRS + BESIDE_COMPUTING].median -
			    alone / values[THEIRS + BESIDE_STALLED].median;
	const double credit = left > 0 ? gained / left : 0;

	(void)state;
	(void)row;
	return json_pack("{s:f,s:f,s:f}", "left_part", left, "credit", credit, "rho_permille",
			 1000 * (1 - MM_MAX(MM_MIN(credit, 1), 0) / 2));
}

static const struct mm_gpu_side steps_sides[] = {
	{ "steps alone", BY_ITSELF, .run = steps_run },
	{ "steps beside others", BESIDE_COMPUTING, .run = steps_run, .undo = kernels_undo },
	{ "steps beside stalls", BESIDE_STALLED, .run = steps_run, .undo = kernels_undo },
};

static const struct mm_gpu_row steps_rows[] = {
	{ "beside_computing", "a step while another process computes the same", MM_GPU_SECONDS,
	  STEP + BESIDE_COMPUTING, .reference = STEP + BY_ITSELF,
	  .reference_name = "the same step alone" },
	{ "stall_credit", "a step while another process stalls between its steps", MM_GPU_SECONDS,
	  STEP + BESIDE_STALLED, .reference = STEP + BESIDE_COMPUTING,
	  .reference_name = "the same step while it does not stall", .computed = stall_more },
};

static const struct mm_gpu_measurement sharing_stalls = {
	.name = "stall_credit",
	MM_GPU_STATEMENT(steps_sides, steps_rows),
	.warm_up = 1,
	.prepare = steps_prepare,
};

/* ---- the group ---- */

static int sharing_open(void *state, struct mm_gpu_bench *bench)
{
	struct sharing *s = state;
	const uint64_t bytes = bench->sizes.copied_bytes / 8;
	int r = mm_gpu_neighbour_open(&s->neighbour, bench);

	if (!r)
		r = mm_gpu_bed_open(&s->bed, bench);
	if (!r)
		r = mm_gpu_load_open(&s->load, &s->bed.module, bench->sizes.load_bytes, 0);
	if (!r)
		r = mm_gpu_host_open(&s->bed.dev, bytes, &s->host);
	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(s->ends); i++)
		r = MM_GPU_CALL(&s->bed.dev, cuEventCreate, &s->ends[i], CU_EVENT_DISABLE_TIMING);
	return r ? r : mm_gpu_range_open(&s->bed.dev, bytes, 0, &s->range);
}

static void sharing_close(void *state)
{
	struct sharing *s = state;

	mm_gpu_neighbour_close(&s->neighbour);
	if (s->bed.dev.gpu.library) {
		for (size_t i = 0; i < MM_ARRAY_SIZE(s->ends); i++)
			if (s->ends[i])
				s->bed.dev.gpu.cuEventDestroy(s->ends[i]);
		mm_gpu_range_close(&s->bed.dev, &s->range);
		mm_gpu_host_close(&s->bed.dev, &s->host);
	}
	mm_gpu_load_close(&s->load);
	mm_gpu_bed_close(&s->bed);
}

const struct mm_gpu_group mm_gpu_sharing = {
	.name = "sharing",
	.what = "what those who share the device cost each other",
	.state_bytes = sizeof(struct sharing),
	.open = sharing_open,
	.close = sharing_close,
	.measurements =
		(const struct mm_gpu_measurement *const[]){ &sharing_link, &sharing_stalls, NULL },
};
