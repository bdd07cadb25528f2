/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/common/footprint.h"

#include <stdio.h>

#include "libclient/model/measure.h"

int mm_footprint(const char *path, uint64_t page_bytes, uint64_t *ret_pages, char *errbuf,
		 size_t errbuf_bytes)
{
	mm_cleanup(mm_layout_done) struct mm_layout layout = { 0 };
	struct mm_why why;
	int r = mm_measure_folder(path, &layout, &why);

	if (r) {
		snprintf(errbuf, errbuf_bytes, "model %s: %s", path, why.text);
		return r;
	}
	*ret_pages = mm_measure_pages(&layout, page_bytes);
	return 0;
}
