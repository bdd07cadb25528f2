/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/fault.h"

static int text_refuse(int code, const char *text, char *err, size_t err_bytes)
{
	snprintf(err, err_bytes, "%s", text);
	return code;
}

int mm_text_read(int fd, size_t max, char **ret_text, size_t *ret_bytes, char *err,
		 size_t err_bytes)
{
	mm_cleanup(mm_free_ptr) char *text = malloc(max + 1);
	size_t bytes = 0;

	if (!text || mm_fault("load.text"))
		return text_refuse(-ENOMEM, "out of memory", err, err_bytes);
	for (;;) {
		ssize_t n = pread(fd, text + bytes, max + 1 - bytes, (off_t)bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return text_refuse(-EIO, strerror(errno), err, err_bytes);
		if (n == 0)
			break;
		bytes += (size_t)n;
		if (bytes > max) {
			snprintf(err, err_bytes, "is larger than %zu MiB", max >> 20);
			return -EFBIG;
		}
	}
	*ret_text = text;
	*ret_bytes = bytes;
	text = NULL;
	return 0;
}
