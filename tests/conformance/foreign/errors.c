/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every error that this toolkit's cuda.h names has that name, and a text, with the driver. A driver
 * that is older than the toolkit need not know the newest.
 */
#include <cuda.h>

#include <stdio.h>
#include <string.h>

static const struct {
	CUresult error;
	const char *name;
} errors[] = {
#define X(name) { name, #name },
#include "errors.inc"
#undef X
};

#define N (sizeof(errors) / sizeof(errors[0]))

static int is_known(CUresult error, const char *want)
{
	const char *name = NULL, *text = NULL;

	if (cuGetErrorName(error, &name) || !name || strcmp(name, want) != 0) {
		fprintf(stderr, "%s (%d): named %s\n", want, (int)error, name ? name : "nothing");
		return 0;
	}
	if (cuGetErrorString(error, &text) || !text || !*text) {
		fprintf(stderr, "%s (%d): without a text\n", want, (int)error);
		return 0;
	}
	return 1;
}

int main(void)
{
	int version = 0, unknown = 0;

	if (N < 80) { /* there were more in 12.0 already */
		fprintf(stderr, "%zu errors found in cuda.h\n", N);
		return 1;
	}
	for (size_t i = 0; i < N; i++)
		unknown += !is_known(errors[i].error, errors[i].name);
	if (cuDriverGetVersion(&version))
		return 1;
	printf("%d of %zu errors unknown to driver %d\n", unknown, N, version);
	return version >= CUDA_VERSION && unknown ? 1 : 0;
}
