/* The C interface of tern, and its only public header: load a GGUF model, turn text into tokens and back, and generate.
 *
 * Every function that can fail returns a tern_status; tern_last_error() says what happened, on the thread it happened
 * on. Nothing is thrown and no signal handler is installed. Handles may be used from any thread, by one at a time for
 * all handles of one model. Texts are UTF-8 with a length, and not terminated unless a comment says so.
 *
 * A function that writes a list takes its capacity and returns how many items there are: it wrote the list if they fit,
 * and nothing otherwise. Ask with capacity 0 first, or bring enough room.
 */
#ifndef TERN_TERN_H
#define TERN_TERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TERN_API __attribute__((visibility("default")))
#else
#define TERN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tern_status {
  TERN_OK = 0,
  TERN_INVALID_ARGUMENT = 1, /* the caller asked for something that makes no sense */
  TERN_BAD_FILE = 2,         /* bytes that break the format */
  TERN_UNSUPPORTED = 3,      /* well-formed, but this build does not implement it */
  TERN_NOT_FOUND = 4,
  TERN_IO = 5,
  TERN_OUT_OF_MEMORY = 6,
  TERN_CONTEXT_FULL = 7, /* the message has both numbers */
  TERN_INTERNAL = 8      /* a fault of tern */
} tern_status;

/* "0.1.0", terminated. */
TERN_API const char* tern_version(void);
/* The message of the last call on this thread that failed, terminated; "" before there was one. Valid until the next
 * call that fails. */
TERN_API const char* tern_last_error(void);

/* ---- Models ---- */

typedef struct tern_model tern_model;

/* Begin with TERN_MODEL_OPTIONS: `size` tells later versions which fields the caller knows. */
typedef struct tern_model_options {
  size_t size;
  int32_t context;   /* tokens a sequence may hold; 0: the largest that fits into memory, at most the trained length */
  int32_t sequences; /* alive at a time, at most 64; 0: one */
  int32_t batch;     /* tokens of a prompt read at once; 0: what suits the backend */
  int32_t threads;   /* 0: the physical cores this process may use */
  void (*progress)(uint64_t done, uint64_t total, void* user); /* bytes of weights while loading; may be NULL */
  void* user;
} tern_model_options;
#define TERN_MODEL_OPTIONS \
  { sizeof(tern_model_options), 0, 0, 0, 0, NULL, NULL }

/* `path` is terminated; `options` may be NULL. *model is set on success only, and freed with tern_model_free. */
TERN_API tern_status tern_model_load(const char* path, const tern_model_options* options, tern_model** model);
/* NULL is allowed. Sequences keep what they need of the model: the order of freeing does not matter. */
TERN_API void tern_model_free(tern_model* model);
TERN_API int32_t tern_model_vocabulary(const tern_model* model); /* logits a position */
TERN_API int32_t tern_model_context(const tern_model* model);    /* tokens a sequence may hold */

/* ---- Text ---- */

enum {
  TERN_TOKENIZE_BEGIN =
      1, /* add the tokens that begin (and end) a text, where the model has such; never a second BOS */
  TERN_TOKENIZE_SPECIAL = 2 /* control tokens spelled out in the text count */
};
/* `flags`: a sum of TERN_TOKENIZE_*. Both for what tern_chat_prompt wrote, and for a prompt to continue. */
TERN_API tern_status tern_tokenize(const tern_model* model, const char* text, size_t length, uint32_t flags,
                                   int32_t* tokens, size_t capacity, size_t* count);
/* Bytes that are no UTF-8 come out as U+FFFD; control tokens as nothing. */
TERN_API tern_status tern_detokenize(const tern_model* model, const int32_t* tokens, size_t count, char* text,
                                     size_t capacity, size_t* length);
TERN_API bool tern_is_end_of_generation(const tern_model* model, int32_t token);

typedef struct tern_message {
  const char* role;    /* "system", "user", "assistant"; terminated */
  const char* content; /* terminated */
} tern_message;
/* The conversation in the model's own template, with the opening of the assistant's turn. TERN_UNSUPPORTED when the
 * file has no template: no framing is guessed. */
TERN_API tern_status tern_chat_prompt(const tern_model* model, const tern_message* messages, size_t count, char* text,
                                      size_t capacity, size_t* length);

/* ---- Sequences ---- */

/* One conversation: its tokens and the memory of what was computed from them. */
typedef struct tern_sequence tern_sequence;

TERN_API tern_status tern_sequence_create(tern_model* model, tern_sequence** sequence);
TERN_API void tern_sequence_free(tern_sequence* sequence);              /* NULL is allowed */
TERN_API int32_t tern_sequence_position(const tern_sequence* sequence); /* tokens it holds */
/* Forgets what is behind `position`. A model with recurrent state may have to go further back: *reached says where. */
TERN_API tern_status tern_sequence_rewind(tern_sequence* sequence, int32_t position, int32_t* reached);
/* Appends `tokens` (at least one). *logits [tern_model_vocabulary] of what comes after the last one are valid until the
 * next call on this model; `logits` may be NULL. A failed call leaves the sequence at a token it had reached. */
TERN_API tern_status tern_eval(tern_sequence* sequence, const int32_t* tokens, size_t count, const float** logits);

/* ---- Generation ---- */

/* Fill with tern_sampling_init. */
typedef struct tern_sampling {
  size_t size;
  float temperature;     /* 0: always the most likely token */
  int32_t top_k;         /* 0: all */
  float top_p;           /* 1: all */
  float min_p;           /* 0: all */
  float repeat_penalty;  /* 1: off */
  int32_t repeat_last_n; /* tokens that the three penalties look back; 0: off, -1: all */
  uint64_t seed;
  float presence_penalty;  /* taken off the logits of tokens seen lately; 0: off */
  float frequency_penalty; /* the same, once for every time they were seen */
} tern_sampling;
/* tern's defaults, and what the file recommends where it does. TERN_BAD_FILE when a recommendation is out of range. */
TERN_API tern_status tern_sampling_init(const tern_model* model, tern_sampling* sampling);

typedef enum tern_finish {
  TERN_FINISH_END = 0,    /* the model ended its answer */
  TERN_FINISH_LENGTH = 1, /* max_tokens were generated */
  TERN_FINISH_STOPPED = 2 /* the callback said so */
} tern_finish;
/* Sees every token but the ending one, with the whole UTF-8 characters it completes (often none). False stops. `token`
 * is -1 once at the end when bytes were left that are no character. */
typedef bool (*tern_on_token)(int32_t token, const char* text, size_t length, void* user);
/* Continues the sequence with `prompt` (it is rewound to what the two have in common, so give the whole conversation)
 * and generates until the model ends, `max_tokens` (-1: no limit), or the callback stops. `sampling` NULL: as
 * tern_sampling_init; `on_token`, `finish` may be NULL. TERN_CONTEXT_FULL when the prompt or the answer does not fit.
 */
TERN_API tern_status tern_generate(tern_sequence* sequence, const int32_t* prompt, size_t count,
                                   const tern_sampling* sampling, int32_t max_tokens, tern_on_token on_token,
                                   void* user, tern_finish* finish);

#ifdef __cplusplus
}
#endif

#endif
