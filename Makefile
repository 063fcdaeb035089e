# The two commands of a newcomer: `make demo` and `make test`. Everything else is cmake presets (CMakePresets.json).
.PHONY: demo test bench deps deps-build lint format clean
DEMO_QUESTION ?= What does "river" mean?

demo: deps-build
	cmake --preset release -DTERN_TESTS=OFF >/dev/null
	cmake --build --preset release --target tern
	build/release/tern run "$(DEMO_QUESTION)"

test: deps
	cmake --preset release -DTERN_TESTS=ON >/dev/null
	cmake --build --preset release
	ctest --preset release --timeout 900 -j $$(nproc)

# Every row of docs/performance.md, on a machine that does nothing else; `bench/run.sh NAME` measures one.
bench: deps
	cmake --preset release >/dev/null
	cmake --build --preset release --target tern
	bench/run.sh

deps:
	scripts/deps.sh
deps-build:
	scripts/deps.sh build
# clang-tidy over what is compiled for every machine; needs a configured build/release.
lint:
	git ls-files 'src/*.cpp' ':!src/backend/cuda' | xargs -P $$(nproc) -n 1 clang-tidy -p build/release --quiet
format:
	git ls-files '*.cpp' '*.h' '*.inl' | xargs clang-format -i
clean:
	rm -rf build
