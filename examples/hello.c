/* Asks a model one question:  hello MODEL.gguf "What does a tern eat?" */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tern/tern.h"

static bool print(int32_t token, const char *text, size_t length, void *user) {
  (void)token;
  (void)user;
  fwrite(text, 1, length, stdout);
  fflush(stdout);
  return true;
}

static int failed(void) {
  fprintf(stderr, "hello: %s\n", tern_last_error());
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: hello MODEL.gguf QUESTION\n");
    return 2;
  }
  tern_model *model;
  if (tern_model_load(argv[1], NULL, &model) != TERN_OK) return failed();

  const tern_message question = {"user", argv[2]};
  char prompt[16384];
  int32_t tokens[4096];
  size_t length, count;
  if (tern_chat_prompt(model, &question, 1, prompt, sizeof prompt, &length) != TERN_OK) return failed();
  if (length > sizeof prompt) return fprintf(stderr, "hello: a shorter question, please\n"), 1;
  if (tern_tokenize(model, prompt, length, TERN_TOKENIZE_BEGIN | TERN_TOKENIZE_SPECIAL, tokens, 4096, &count) != TERN_OK)
    return failed();
  if (count > 4096) return fprintf(stderr, "hello: a shorter question, please\n"), 1;

  tern_sequence *sequence;
  tern_sampling sampling;
  if (tern_sequence_create(model, &sequence) != TERN_OK) return failed();
  if (tern_sampling_init(model, &sampling) != TERN_OK) return failed();
  sampling.temperature = 0;
  if (tern_generate(sequence, tokens, count, &sampling, 64, print, NULL, NULL) != TERN_OK) return failed();
  putchar('\n');
  tern_sequence_free(sequence);
  tern_model_free(model);
  return 0;
}
