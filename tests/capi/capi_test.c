/* The C interface from C: capi_test TERN MODEL. The greedy text has to be what `TERN run` prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tern/tern.h"

static int failures = 0;
#define EXPECT(condition)                                                                             \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, tern_last_error()); \
      ++failures;                                                                                     \
    }                                                                                                 \
  } while (0)

enum { kRoom = 4096, kTokens = 24 };
static const char kPrompt[] = "What is a river?";

typedef struct {
  char text[kRoom];
  size_t length;
  int tokens, stop_after;
} Collected;

static bool collect(int32_t token, const char *text, size_t length, void *user) {
  Collected *c = user;
  if (c->length + length < kRoom) memcpy(c->text + c->length, text, length);
  c->length += length;
  c->tokens += token >= 0;
  return c->tokens != c->stop_after;
}

static void read_command(const char *tern, const char *model, const char *flags, char *out) {
  char command[kRoom];
  snprintf(command, sizeof command, "'%s' run -m '%s' -q --temp 0 %s -n %d -p '%s' </dev/null", tern, model, flags, kTokens,
           kPrompt);
  FILE *pipe = popen(command, "r");
  EXPECT(pipe != NULL);
  if (pipe == NULL) return;
  const size_t n = fread(out, 1, kRoom - 1, pipe);
  out[n] = '\0';
  if (n > 0 && out[n - 1] == '\n') out[n - 1] = '\0'; /* the line break that ends an answer */
  EXPECT(pclose(pipe) == 0);
}

static void test_errors(const char *path) {
  tern_model *model = NULL;
  EXPECT(tern_model_load("/nonexistent.gguf", NULL, &model) == TERN_NOT_FOUND);
  EXPECT(strstr(tern_last_error(), "/nonexistent.gguf") != NULL);
  EXPECT(tern_model_load(NULL, NULL, &model) == TERN_INVALID_ARGUMENT);
  EXPECT(tern_model_load(__FILE__, NULL, &model) == TERN_BAD_FILE);
  tern_model_options options = TERN_MODEL_OPTIONS;
  options.size = 0;
  EXPECT(tern_model_load(path, &options, &model) == TERN_INVALID_ARGUMENT);
  options = (tern_model_options)TERN_MODEL_OPTIONS;
  options.context = -1;
  EXPECT(tern_model_load(path, &options, &model) == TERN_INVALID_ARGUMENT);
  EXPECT(model == NULL);
  tern_model_free(NULL);
  tern_sequence_free(NULL);
}

static void test_text(const tern_model *model) {
  static int32_t tokens[kRoom];
  size_t count = 0, needed = 0, length = 0;
  char text[kRoom];
  EXPECT(tern_tokenize(model, kPrompt, strlen(kPrompt), 0, NULL, 0, &needed) == TERN_OK);
  EXPECT(needed > 1);
  EXPECT(tern_tokenize(model, kPrompt, strlen(kPrompt), 0, tokens, kRoom, &count) == TERN_OK);
  EXPECT(count == needed);
  EXPECT(tern_detokenize(model, tokens, count, text, sizeof text, &length) == TERN_OK);
  EXPECT(length == strlen(kPrompt) && memcmp(text, kPrompt, length) == 0);
  const int32_t beyond = tern_model_vocabulary(model);
  EXPECT(tern_detokenize(model, &beyond, 1, text, sizeof text, &length) == TERN_INVALID_ARGUMENT);
  EXPECT(!tern_is_end_of_generation(model, beyond) && !tern_is_end_of_generation(model, -1));
  EXPECT(tern_tokenize(model, kPrompt, 1, 1u << 9, tokens, kRoom, &needed) == TERN_INVALID_ARGUMENT);

  const tern_message message = {"user", "Hello"};
  EXPECT(tern_chat_prompt(model, &message, 1, NULL, 0, &needed) == TERN_OK);
  EXPECT(tern_chat_prompt(model, &message, 1, text, sizeof text, &length) == TERN_OK);
  EXPECT(length == needed && length > strlen("Hello"));
  const tern_message nobody = {NULL, "Hello"};
  EXPECT(tern_chat_prompt(model, &nobody, 1, text, sizeof text, &length) == TERN_INVALID_ARGUMENT);
}

/* The question in the model's template, as tokens. */
static size_t chat_tokens(const tern_model *model, int32_t *tokens) {
  const tern_message question = {"user", kPrompt};
  char text[kRoom];
  size_t length = 0, count = 0;
  EXPECT(tern_chat_prompt(model, &question, 1, text, sizeof text, &length) == TERN_OK);
  EXPECT(tern_tokenize(model, text, length, TERN_TOKENIZE_BEGIN | TERN_TOKENIZE_SPECIAL, tokens, kRoom, &count) == TERN_OK);
  return count;
}

/* Token by token with tern_eval: the most likely token each time is what tern_generate says. */
static void test_eval(tern_model *model, const int32_t *prompt, size_t count, const Collected *expected) {
  tern_sequence *sequence = NULL;
  Collected got = {.stop_after = -1};
  const float *logits = NULL;
  EXPECT(tern_sequence_create(model, &sequence) == TERN_OK);
  if (sequence == NULL) return;
  EXPECT(tern_eval(sequence, prompt, 0, &logits) == TERN_INVALID_ARGUMENT);
  EXPECT(tern_eval(sequence, prompt, count, &logits) == TERN_OK);
  const int32_t n = tern_model_vocabulary(model);
  for (int i = 0; i < 4 && logits != NULL; ++i) {
    int32_t best = 0;
    for (int32_t t = 1; t < n; ++t)
      if (logits[t] > logits[best]) best = t;
    char text[64];
    size_t length = 0;
    EXPECT(tern_detokenize(model, &best, 1, text, sizeof text, &length) == TERN_OK);
    collect(best, text, length, &got);
    EXPECT(tern_eval(sequence, &best, 1, &logits) == TERN_OK);
  }
  EXPECT(got.length > 0 && memcmp(got.text, expected->text, got.length) == 0);
  EXPECT(tern_sequence_position(sequence) == (int32_t)count + 4);
  int32_t reached = -1;
  EXPECT(tern_sequence_rewind(sequence, (int32_t)count, &reached) == TERN_OK);
  EXPECT(reached <= (int32_t)count && reached == tern_sequence_position(sequence));
  EXPECT(tern_eval(sequence, &n, 1, NULL) == TERN_INVALID_ARGUMENT); /* a token outside the vocabulary */
  tern_sequence_free(sequence);
}

static void test_generate(tern_model *model, const int32_t *prompt, size_t count, const char *expected) {
  tern_sequence *sequence = NULL;
  tern_sampling sampling;
  tern_finish finish = TERN_FINISH_STOPPED;
  Collected got = {.stop_after = -1};
  EXPECT(tern_sampling_init(model, &sampling) == TERN_OK);
  sampling.temperature = 0;
  EXPECT(tern_sequence_create(model, &sequence) == TERN_OK);
  if (sequence == NULL) return;
  EXPECT(tern_generate(sequence, prompt, count, &sampling, kTokens, collect, &got, &finish) == TERN_OK);
  EXPECT(finish == TERN_FINISH_LENGTH && got.tokens == kTokens);
  EXPECT(got.length == strlen(expected) && memcmp(got.text, expected, got.length) == 0);
  test_eval(model, prompt, count, &got);

  Collected few = {.stop_after = 3}; /* the same sequence again: what it holds is used */
  EXPECT(tern_generate(sequence, prompt, count, &sampling, -1, collect, &few, &finish) == TERN_OK);
  EXPECT(finish == TERN_FINISH_STOPPED && few.tokens == 3);
  EXPECT(few.length > 0 && memcmp(few.text, expected, few.length) == 0);
  sampling.top_p = 7;
  EXPECT(tern_generate(sequence, prompt, count, &sampling, 1, NULL, NULL, NULL) == TERN_INVALID_ARGUMENT);
  sampling.size = 0;
  EXPECT(tern_generate(sequence, prompt, count, &sampling, 1, NULL, NULL, NULL) == TERN_INVALID_ARGUMENT);

  int32_t *huge = calloc(400, sizeof *huge);
  for (int i = 0; huge != NULL && i < 400; ++i) huge[i] = prompt[0];
  EXPECT(huge != NULL && tern_generate(sequence, huge, 400, NULL, 1, NULL, NULL, NULL) == TERN_CONTEXT_FULL);
  EXPECT(strstr(tern_last_error(), "400") != NULL && strstr(tern_last_error(), "256") != NULL);
  free(huge);
  tern_sequence_free(sequence);
}

/* As `varied` with penalties; as ever for a caller who was built before they were there. */
static void test_penalties(tern_model *model, const int32_t *prompt, size_t count, const char *expected,
                           const char *varied) {
  tern_sequence *sequence = NULL;
  tern_sampling sampling;
  EXPECT(tern_sampling_init(model, &sampling) == TERN_OK);
  EXPECT(sampling.presence_penalty == 0 && sampling.frequency_penalty == 0);
  EXPECT(tern_sequence_create(model, &sequence) == TERN_OK);
  if (sequence == NULL) return;
  sampling.temperature = 0;
  sampling.presence_penalty = 0.5f;
  sampling.frequency_penalty = 1.5f;
  for (int old = 0; old < 2; ++old) {
    Collected got = {.stop_after = -1};
    const char *wanted = old ? expected : varied;
    if (old) sampling.size = offsetof(tern_sampling, presence_penalty);
    EXPECT(tern_generate(sequence, prompt, count, &sampling, kTokens, collect, &got, NULL) == TERN_OK);
    EXPECT(got.length == strlen(wanted) && memcmp(got.text, wanted, got.length) == 0);
  }
  sampling.size = sizeof sampling;
  sampling.frequency_penalty = 7;
  EXPECT(tern_generate(sequence, prompt, count, &sampling, 1, NULL, NULL, NULL) == TERN_INVALID_ARGUMENT);
  tern_sequence_free(sequence);
}

static void count_progress(uint64_t done, uint64_t total, void *user) {
  if (done <= total) ++*(int *)user;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  char expected[kRoom] = "", varied[kRoom] = "";
  read_command(argv[1], argv[2], "", expected);
  read_command(argv[1], argv[2], "--presence-penalty 0.5 --frequency-penalty 1.5", varied);
  EXPECT(strlen(expected) > 0 && strcmp(expected, varied) != 0);
  EXPECT(strlen(tern_version()) > 0);
  test_errors(argv[2]);

  int progress = 0;
  tern_model *model = NULL;
  tern_model_options options = TERN_MODEL_OPTIONS;
  options.context = 256;
  options.sequences = 2;
  options.progress = count_progress;
  options.user = &progress;
  EXPECT(tern_model_load(argv[2], &options, &model) == TERN_OK);
  if (model == NULL) return 1;
  EXPECT(progress > 0);
  EXPECT(tern_model_context(model) == 256);
  int32_t tokens[kRoom];
  test_text(model);
  const size_t count = chat_tokens(model, tokens);
  test_generate(model, tokens, count, expected);
  test_penalties(model, tokens, count, expected, varied);

  tern_sequence *survivor = NULL;
  EXPECT(tern_sequence_create(model, &survivor) == TERN_OK);
  tern_model_free(model); /* the order of freeing does not matter */
  EXPECT(survivor != NULL && tern_eval(survivor, tokens, count, NULL) == TERN_OK);
  tern_sequence_free(survivor);
  if (failures == 0) printf("ok: %s\n", expected);
  return failures != 0;
}
