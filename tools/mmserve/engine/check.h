/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - a model's files against its config.json, before anything is loaded
 *
 * Concept:    what mm_weights_bind() will find wrong is found here, by headers alone; and the other
 *             way round, what the files hold and the forward pass would leave out. A tensor of the
 *             decoder that nobody reads means that another computation is meant (a bias, a norm of
 *             heads, a head beside a tied embedding): refused rather than computed wrongly. Left
 *             out in peace are buffers that follow from config.json, and heads for other tasks.
 * Trust:      files that the loader would refuse are left to it: its sentence is the better one.
 */
#pragma once

#include "libclient/model/arch.h"

/**
 * mm_serve_check_files() - compare, with the caller's own rights
 * @dir:  of the model
 * @arch: of mm_config_load()
 * @err:  gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Reads weights only where a tied model has a head of its own: it may be the embedding once more.
 * Return: 0, also for files that cannot be read or parsed; -EBADMSG a tensor is missing, has
 * another shape, or contradicts config.json; -ENOTSUP one that the computation has no use for;
 * -ENOMEM.
 */
int mm_serve_check_files(const char *dir, const struct mm_arch *arch, char *err);
