/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "kernels/softgpu/device_state.h"
#include "kernels/softgpu/mig.h"
#include "kernels/softgpu/settings.h"
#include "kernels/softgpu/snapshot.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

static void snapshot_of(const struct sg_settings *w, unsigned int number, struct sg_snapshot *ret)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	char parent[PATH_MAX], state_path[PATH_MAX + 8];
	struct sg_device_state state = { 0 };

	*ret = (struct sg_snapshot){ .number = number };
	if (sg_device_path(number, parent, ret->path) < 0)
		return;
	snprintf(state_path, sizeof(state_path), "%s/state", ret->path);
	fd = open(state_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd >= 0 && pread(fd, &state, sizeof(state), 0) == (ssize_t)sizeof(state) &&
	    state.magic == SG_STATE_MAGIC) {
		ret->info = state.info;
		ret->info.name[sizeof(ret->info.name) - 1] = '\0';
		ret->used_bytes = MM_MIN(state.used_bytes, state.info.capacity_bytes);
	} else {
		/* No process has made the device yet: describe what would be made. */
		ret->info.capacity_bytes =
			w->memory_bytes ? w->memory_bytes : sg_settings_memory(w);
		snprintf(ret->info.name, sizeof(ret->info.name), "%s", sg_settings_name(w));
		sg_device_uuid_of_path(ret->path, &ret->info.uuid);
	}
	if (w->has_uuid) {
		ret->info.uuid = w->uuid;
		ret->info.uuid.bytes[sizeof(ret->info.uuid.bytes) - 1] ^= (char)number;
	}
	ret->info.number = number;
}

unsigned int sg_snapshots_take(struct sg_snapshot *ret, unsigned int max,
			       unsigned int *ret_instances)
{
	struct sg_settings w = { 0 };
	struct sg_mig mig;
	unsigned int n = 0;

	if (sg_settings_read(&w))
		return 0;
	for (unsigned int i = 0; i < w.there && n < max; i++)
		snapshot_of(&w, i, &ret[n++]);
	ret[0].mig = n && w.instances;
	*ret_instances = 0;
	sg_mig_read(w.instances, &mig);
	for (unsigned int i = 0; i < SG_MIG_MAX && n < max; i++) {
		if (mig.place[i] != SG_MIG_DEVICE)
			continue;
		snapshot_of(&w, SG_MIG_FIRST + i, &ret[n++]);
		(*ret_instances)++;
	}
	return n;
}

void sg_uuid_text(const struct sg_snapshot *seen, char *ret_text)
{
	const unsigned char *b = (const unsigned char *)seen->info.uuid.bytes;
	size_t at;

	at = (size_t)snprintf(ret_text, SG_UUID_TEXT, "%s",
			      seen->number >= SG_MIG_FIRST ? "MIG" : "GPU");
	for (size_t i = 0; i < sizeof(seen->info.uuid.bytes); i++)
		at += (size_t)snprintf(ret_text + at, SG_UUID_TEXT - at, "%s%02x",
				       i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				       b[i]);
}

/*
 * Return: the index of the device whose UUID begins with @word; -1 where none does, or several do.
 */
static int device_by_word(const struct sg_snapshot *seen, unsigned int n, const char *word,
			  size_t bytes)
{
	char text[SG_UUID_TEXT];
	int found = -1;

	for (unsigned int i = 0; i < n; i++) {
		sg_uuid_text(&seen[i], text);
		if (strncasecmp(text, word, bytes) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

/*
 * Chooses devices by the UUIDs in CUDA_VISIBLE_DEVICES, as CUDA does: up to the first that names
 * nothing; a MIG instance must be the only one. Numbers in the variable are for real drivers and
 * not read.
 */
static void snapshot_by_uuid(struct sg_settings *w, const char *words)
{
	struct sg_snapshot *seen = calloc(SG_DEVICES_MAX + SG_MIG_MAX, sizeof(*seen));
	unsigned int n, instances;

	w->n_devices = 0;
	n = seen ? sg_snapshots_take(seen, SG_DEVICES_MAX + SG_MIG_MAX, &instances) : 0;
	while (*words && w->n_devices < SG_DEVICES_MAX) {
		size_t bytes = strcspn(words, ",");
		int found = device_by_word(seen, n, words, bytes);

		if (found < 0 || (w->n_devices && seen[found].number >= SG_MIG_FIRST))
			break;
		w->device[w->n_devices++] = seen[found].number;
		if (seen[found].number >= SG_MIG_FIRST)
			break;
		words += bytes + (words[bytes] == ',');
	}
	free(seen);
}

/* A GPU in MIG mode is seen as its first instance, or not at all. */
static void snapshot_by_default(struct sg_settings *w)
{
	struct sg_mig mig;

	sg_mig_read(w->instances, &mig);
	w->n_devices = 0;
	for (unsigned int i = 0; !w->n_devices && i < SG_MIG_MAX; i++)
		if (mig.place[i] == SG_MIG_DEVICE)
			w->device[w->n_devices++] = SG_MIG_FIRST + i;
}

void sg_settings_select_visible(struct sg_settings *w)
{
	const char *words = secure_getenv("CUDA_VISIBLE_DEVICES");

	if (words && (strncmp(words, "GPU-", 4) == 0 || strncmp(words, "MIG-", 4) == 0))
		snapshot_by_uuid(w, words);
	for (unsigned int i = 0; w->instances && i < w->n_devices; i++) {
		if (w->device[i] == 0) {
			snapshot_by_default(w);
			break;
		}
	}
}
