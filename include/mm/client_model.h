/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_model - weights made by another tenant, weights outside steps, a model that goes
 *
 * Concept:   An engine that makes weights of its own gives them a key when it commits them
 *            (mm_model_opts): whatever decides about their bytes, such as model, revision, types,
 *            rank and its own version. The next one of the same configuration asks for the key
 *            first, and neither reads nor makes anything.
 *            In a step a layer's weights are there between mm_layer_begin() and mm_layer_end(). At
 *            any other time mmd may have taken them, and reading them is a fault. An engine that
 *            reads them outside steps - checksums, adapters, export - holds its model meanwhile:
 *            all layers come home, and stay until it lets go.
 *            A client has one model at a time. An engine that sleeps, or changes its weights, gives
 *            the model back and loads another later, on the same connection and with its arena.
 * Trust:     A key is what its committer claims. It is found by the same user in the same account
 *            only, whose processes can harm each other anyway; to all others it does not exist.
 *            Who has the digest of what it expects names it, and gets no other bytes.
 * Threading: as in client.h. A model is held once, for all threads.
 */
#pragma once

#include "mm/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * mm_model_load_key() - load the model that was committed under a key
 * @client:    one model per client
 * @key:       as mm_model_opts.key had it
 * @key_bytes: 1 .. MM_MODEL_KEY_BYTES
 * @digest:    MM_MODEL_DIGEST_BYTES of mm_model_info.digest that it must have; NULL: any
 * @ret_model: as of mm_model_load()
 *
 * Passes no file, and mmd reads none: the host copy is that of the committer, whose packs it has.
 * A key exists from the end of its commit until the last tenant of its user and account that uses
 * the model has ended. While one is filled the call waits for it; while mmd
 * still computes its digest there is none. mm_model_load_files()
 * with a key fails with -EEXIST if other bytes have it, -ENOSPC if these bytes have too many of the
 * user, -EINVAL if a file is not a sealed memfd, and -E2BIG and -EOPNOTSUPP as this call. Since
 * version 0.3. Return: as mm_model_load(); -ENOENT there is no such key: make the weights, and
 * commit them; -ESTALE another digest; -EINVAL no key; -E2BIG a longer one; -EOPNOTSUPP an older
 * mmd.
 */
MM_API int mm_model_load_key(struct mm_client *client, const void *key, size_t key_bytes,
			     const uint8_t *digest, struct mm_model **ret_model);

/**
 * mm_model_hold() - have all layers at home, until mm_model_release()
 * @model:      any; no step of this client is open
 * @timeout_ns: how long to wait for the layers; MM_TIMEOUT_NEVER
 *
 * Waits until mmd has found room for the layers that are away, and copied them. It comes before a
 * plan of the operator, who is told. Steps may run meanwhile, once it has returned. Others get
 * nothing of this model while it is held: it is for seconds, not for good. After an error nothing
 * is held. Since version 0.3. Return: 0; -EALREADY it is held; -EBUSY a step is open; -EDQUOT the
 * account has no room for the layers: release KV; -ETIMEDOUT; -EOPNOTSUPP an older mmd;
 * -ECONNRESET.
 */
MM_API int mm_model_hold(struct mm_model *model, uint64_t timeout_ns);

/**
 * mm_model_release() - let go of a model that is held
 * @model: weights are read in steps only from now on
 *
 * Return: 0; -EINVAL it is not held; -ETIMEDOUT; -ECONNRESET.
 */
MM_API int mm_model_release(struct mm_model *model);

/**
 * mm_layer_home() - whether a layer that was begun is at home
 * @model: a step is open
 * @layer: between mm_layer_begin() and mm_layer_end()
 *
 * No plan takes a layer from an open step, so one that is at home can be read at once, by the
 * host's processor too, until its end. An engine that computes without streams, on the software
 * GPU, synchronises the layer's stream only where this is 0. Never blocks; the thread of the step.
 * Since version 0.3. Return: 1 at home; 0 it cycles: the stream waits for it; -EINVAL it was not
 * begun.
 */
MM_API int mm_layer_home(struct mm_model *model, uint32_t layer);

/**
 * mm_model_unload() - give a model back to mmd
 * @model: freed on success, with all that it has given: tensors, store, gate times
 *
 * No step of this client is open, no work that reads the weights is enqueued, and no graph that has
 * their addresses is replayed any more. Waits until mmd has ended a change of the plan that is
 * under way, and until the weights are unmapped. Then their pages are mmd's, the host copy is
 * dropped unless others use it, and the client is as before its load: another model, or the same,
 * may be loaded. Arena, swap space, other memory, group and turns stay as they are; steps without a
 * model go on, but none may be open from the call of the next load until it returns. Since version
 * 0.3. Return: 0; -EBUSY a step is open, or the model is held; -EALREADY another thread unloads it;
 * -ETIMEDOUT: it goes on, no layer can be begun any more, and another call waits for its end;
 * -EOPNOTSUPP an older mmd; -ECONNRESET. After any other error than -ETIMEDOUT and -ECONNRESET the
 * model is as before.
 */
MM_API int mm_model_unload(struct mm_model *model);

#ifdef __cplusplus
}
#endif
