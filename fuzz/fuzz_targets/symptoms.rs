#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| everfold_fuzz_checks::symptoms::check(data));
