/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top - `mmctl top`: a live view of pools and tenants
 *
 * The terminal is curses'. It is given back whatever ends the program: a key, a signal, a terminal
 * that hangs up. While mmd cannot be reached, the last frame stays, and says so.
 */
#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "tools/mmctl/ctl.h"
#include "tools/mmctl/frame.h"

#define COLUMNS_DEFAULT 80
#define ANSWER_NS       (5 * MM_NS_PER_S)

static const char keys_line[] = "q quit  k KV  n name  a away  t step  s stall  w weights  "
				"/ filter  arrows";

struct top {
	struct mmctl ctl;
	struct mmctl_frame_opts opts;
	struct mmctl_frame frame;
	json_t *now, *before;
	uint64_t now_ns, before_ns;
	int result; /* of the last request */
	bool types; /* a filter is being typed */
};

static volatile sig_atomic_t top_ended;

static void top_on_signal(int number)
{
	top_ended = number;
}

static void top_done(struct top *t)
{
	json_decref(t->now);
	json_decref(t->before);
}

static void top_ask(struct top *t)
{
	json_t *answer = NULL;

	t->result = mmctl_request(&t->ctl, "status", NULL, &answer);
	if (t->result != MM_EXIT_DONE)
		return;
	json_decref(t->before);
	t->before = t->now;
	t->before_ns = t->now_ns;
	t->now = answer;
	t->now_ns = mm_now_ns();
}

static void top_frame(struct top *t)
{
	mmctl_frame_make(t->now, t->before, (double)(t->now_ns - t->before_ns) / MM_NS_PER_S,
			 &t->opts, &t->frame);
}

/* ---- once ---- */

static size_t terminal_columns(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
		return size.ws_col;
	return COLUMNS_DEFAULT;
}

/* Rates need two answers. */
static int top_once(struct top *t, uint64_t interval_ns)
{
	const struct timespec pause = { .tv_sec = (time_t)(interval_ns / MM_NS_PER_S),
					.tv_nsec = (long)(interval_ns % MM_NS_PER_S) };

	top_ask(t);
	if (t->result == MM_EXIT_DONE) {
		nanosleep(&pause, NULL);
		top_ask(t);
	}
	if (t->result != MM_EXIT_DONE)
		return t->result;
	if (t->ctl.json)
		return mmctl_print_json(t->now);
	t->opts.columns = terminal_columns();
	top_frame(t);
	for (size_t i = 0; i < t->frame.n; i++)
		puts(t->frame.line[i]);
	return MM_EXIT_DONE;
}

/* ---- the screen ---- */

static attr_t attribute_of(enum mmctl_line kind)
{
	return kind == MMCTL_LINE_HEAD    ? A_REVERSE
	       : kind == MMCTL_LINE_TITLE ? A_BOLD
	       : kind == MMCTL_LINE_WARN  ? A_STANDOUT
					  : A_NORMAL;
}

static void screen_put(int y, attr_t attribute, const char *text)
{
	move(y, 0);
	attrset((int)attribute);
	addnstr(text, COLS);
	attrset(A_NORMAL);
}

static void screen_draw(struct top *t)
{
	char last[128];

	erase();
	t->opts.columns = COLS > 0 ? (size_t)COLS : COLUMNS_DEFAULT;
	t->opts.lines = LINES > 1 ? (size_t)LINES - 1 : 1;
	top_frame(t);
	for (size_t i = 0; i < t->frame.n; i++)
		screen_put((int)i, attribute_of(t->frame.kind[i]), t->frame.line[i]);
	if (t->types)
		snprintf(last, sizeof(last), "/%s_  Enter ends, Esc clears", t->opts.filter);
	else if (t->result != MM_EXIT_DONE)
		snprintf(last, sizeof(last),
			 "mmd cannot be reached for %.0f s; this is what was last  (q quit)",
			 (double)(mm_now_ns() - t->now_ns) / MM_NS_PER_S);
	else
		snprintf(last, sizeof(last), "%s", keys_line);
	screen_put(LINES - 1, A_REVERSE, last);
	refresh();
}

/* A key while the filter is typed. */
static void filter_type(struct top *t, int key)
{
	size_t n = strlen(t->opts.filter);

	if (key == '\n' || key == KEY_ENTER || key == 27)
		t->types = false;
	if (key == 27)
		t->opts.filter[0] = '\0';
	else if ((key == KEY_BACKSPACE || key == 127 || key == 8) && n)
		t->opts.filter[n - 1] = '\0';
	else if (key >= ' ' && key < 127 && n + 1 < sizeof(t->opts.filter)) {
		t->opts.filter[n] = (char)key;
		t->opts.filter[n + 1] = '\0';
	}
}

/* Returns false if the key ends the program. */
static bool key_handle(struct top *t, int key)
{
	static const char sorts[MMCTL_SORTS + 1] = "knatsw";
	const char *sort = key > 0 && key < 127 ? strchr(sorts, key) : NULL;

	if (t->types && key != KEY_RESIZE) {
		filter_type(t, key);
		return true;
	}
	if (sort)
		t->opts.sort = (enum mmctl_sort)(sort - sorts);
	else if (key == '/')
		t->types = true;
	else if (key == 27)
		t->opts.filter[0] = '\0';
	else if (key == KEY_DOWN)
		t->opts.first++;
	else if (key == KEY_UP && t->opts.first)
		t->opts.first--;
	return key != 'q';
}

/* Handles what was typed until @until_ns. Returns false if the program is to end. */
static bool keys_wait(struct top *t, uint64_t until_ns)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	uint64_t now_ns = mm_now_ns();
	int key;

	while (now_ns < until_ns && !top_ended) {
		poll(&in, 1, (int)((until_ns - now_ns) / MM_NS_PER_MS) + 1);
		if (in.revents & (POLLHUP | POLLERR | POLLNVAL))
			return false;
		while ((key = getch()) != ERR) {
			if (!key_handle(t, key))
				return false;
			screen_draw(t);
		}
		now_ns = mm_now_ns();
	}
	return !top_ended;
}

static void signals_catch(void)
{
	const struct sigaction end = { .sa_handler = top_on_signal };

	sigaction(SIGINT, &end, NULL);
	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGHUP, &end, NULL);
	sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
}

/* Sentences of requests would be written over the screen. */
static int errors_hide(void)
{
	mm_cleanup(mm_close_fd) int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

	if (null >= 0)
		dup2(null, STDERR_FILENO);
	return kept;
}

static int top_screen(struct top *t, uint64_t interval_ns)
{
	mm_cleanup(mm_close_fd) int errors = -1;
	SCREEN *screen;
	bool goes_on = true;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return mmctl_error(MM_EXIT_USAGE, "top: needs a terminal; --once prints one frame");
	top_ask(t);
	if (t->result != MM_EXIT_DONE)
		return t->result;
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return mmctl_error(MM_EXIT_USAGE,
				   "top: TERM names no terminal that is known; --once prints one "
				   "frame");
	signals_catch();
	errors = errors_hide();
	cbreak();
	noecho();
	nodelay(stdscr, TRUE);
	keypad(stdscr, TRUE);
	set_escdelay(25);
	curs_set(0);
	t->ctl.quiet = true;
	while (goes_on) {
		screen_draw(t);
		goes_on = keys_wait(t, mm_now_ns() + interval_ns);
		if (goes_on)
			top_ask(t);
	}
	endwin();
	delscreen(screen);
	if (errors >= 0)
		dup2(errors, STDERR_FILENO);
	return MM_EXIT_DONE;
}

int mmctl_top_run(const struct mmctl *ctl, int argc, char **argv)
{
	const struct mmctl_options *o = ctl->options;
	const uint64_t interval_ns = (uint64_t)(o->interval_s * MM_NS_PER_S);
	mm_cleanup(top_done) struct top t = { .ctl = *ctl };
	int r;

	(void)argc;
	(void)argv;
	t.ctl.timeout_ns = ANSWER_NS;
	r = o->once || ctl->json ? top_once(&t, interval_ns) : top_screen(&t, interval_ns);
	return r;
}
