/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/text/pieces.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <sentencepiece_processor.h>

struct mm_pieces {
	sentencepiece::SentencePieceProcessor processor;
};

int mm_pieces_open(const char *path, struct mm_pieces **ret_pieces, char *err, size_t err_bytes)
try {
	mm_pieces *p = new mm_pieces;
	const auto status = p->processor.Load(path);

	if (status.ok()) {
		*ret_pieces = p;
		return 0;
	}
	snprintf(err, err_bytes, "%s", "it is no model of SentencePiece");
	delete p;
	return -EBADMSG;
} catch (const std::bad_alloc &) {
	snprintf(err, err_bytes, "out of memory");
	return -ENOMEM;
} catch (const std::exception &e) {
	snprintf(err, err_bytes, "%s", e.what());
	return -EBADMSG;
}

void mm_pieces_close(struct mm_pieces *p)
{
	delete p;
}

uint32_t mm_pieces_count(const struct mm_pieces *p)
{
	return static_cast<uint32_t>(p->processor.GetPieceSize());
}

int mm_pieces_bos(const struct mm_pieces *p)
{
	return p->processor.bos_id();
}

int mm_pieces_encode(const struct mm_pieces *p, const char *text, size_t bytes, uint32_t **ret_ids,
		     size_t *ret_n)
try {
	std::vector<int> ids;
	uint32_t *out;

	if (!p->processor.Encode(absl::string_view(text, bytes), &ids).ok())
		return -EINVAL;
	out = static_cast<uint32_t *>(calloc(ids.size() + 1, sizeof(*out)));
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < ids.size(); i++)
		out[i] = static_cast<uint32_t>(ids[i]);
	*ret_ids = out;
	*ret_n = ids.size();
	return 0;
} catch (const std::exception &) {
	return -ENOMEM;
}

const char *mm_pieces_text(const struct mm_pieces *p, uint32_t id, size_t *ret_bytes,
			   enum mm_piece_kind *ret_kind)
{
	const int piece = static_cast<int>(id);
	const std::string &text = p->processor.IdToPiece(piece);

	*ret_kind = p->processor.IsControl(piece) || p->processor.IsUnused(piece) ?
			    MM_PIECE_CONTROL :
		    p->processor.IsByte(piece)    ? MM_PIECE_BYTE :
		    p->processor.IsUnknown(piece) ? MM_PIECE_UNKNOWN :
						    MM_PIECE_TEXT;
	*ret_bytes = text.size();
	return text.c_str();
}
