/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/fault.h"

int mm_text_read(int fd, const char *name, size_t max, char **ret_text, size_t *ret_bytes,
		 struct mm_why *why)
{
	mm_cleanup(mm_free_ptr) char *text = malloc(max + 1);
	size_t bytes = 0;

	if (!text || mm_fault("load.text"))
		return mm_refuse(why, -ENOMEM, "%s: no memory", name);
	for (;;) {
		ssize_t n = pread(fd, text + bytes, max + 1 - bytes, (off_t)bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return mm_refuse(why, -EIO, "%s: %s", name, strerror(errno));
		if (n == 0)
			break;
		bytes += (size_t)n;
		if (bytes > max)
			return mm_refuse(why, -EFBIG, "%s: is larger than %zu MiB", name,
					 max >> 20);
	}
	*ret_text = text;
	*ret_bytes = bytes;
	text = NULL;
	return 0;
}
