/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/build.h"

#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"

#define ID_BYTES 4 /* of the number are shown */

/* Return: the number of the build in a segment of notes; NULL: it has none, or is damaged. */
static const unsigned char *notes_find_id(const unsigned char *at, size_t bytes)
{
	while (bytes >= sizeof(ElfW(Nhdr))) {
		ElfW(Nhdr) note;
		size_t name, all;

		memcpy(&note, at, sizeof(note));
		name = mm_round_up(note.n_namesz, 4);
		all = sizeof(note) + name + mm_round_up(note.n_descsz, 4);
		if (all > bytes)
			return NULL;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    note.n_descsz >= ID_BYTES && memcmp(at + sizeof(note), "GNU", 4) == 0)
			return at + sizeof(note) + name;
		at += all;
		bytes -= all;
	}
	return NULL;
}

/* The first object is the program. */
static int program_name_build(struct dl_phdr_info *info, size_t bytes, void *to)
{
	const unsigned char *id = NULL;

	(void)bytes;
	for (ElfW(Half) i = 0; i < info->dlpi_phnum && !id; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type == PT_NOTE)
			id = notes_find_id((const unsigned char *)(info->dlpi_addr + part->p_vaddr),
					   part->p_memsz);
	}
	if (id)
		snprintf(to, MM_BUILD_BYTES, MM_VERSION " %02x%02x%02x%02x", id[0], id[1], id[2],
			 id[3]);
	return 1;
}

void mm_build_exe(char *path, size_t bytes)
{
	static const char deleted[] = " (deleted)";
	const size_t tail = sizeof(deleted) - 1;
	ssize_t n = readlink("/proc/self/exe", path, bytes - 1);

	/* One that does not fit would be another path. */
	n = n < 0 || (size_t)n == bytes - 1 ? 0 : n;
	path[n] = '\0';
	if ((size_t)n > tail && strcmp(path + n - tail, deleted) == 0)
		path[(size_t)n - tail] = '\0';
}

const char *mm_build_name(void)
{
	static char name[MM_BUILD_BYTES];

	if (!*name) {
		snprintf(name, sizeof(name), "%s", MM_VERSION);
		dl_iterate_phdr(program_name_build, name);
	}
	return name;
}
