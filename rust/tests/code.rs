// SPDX-License-Identifier: Apache-2.0
use std::env;
use std::thread;

use tandem_ec::{status, Error, Options, ReconstructShard, ReedSolomon};

/// Random numbers; TANDEM_TEST_SEED repeats a run.
struct Random(u64);

impl Random {
    fn new() -> Random {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = env::var("TANDEM_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(now);
        println!("TANDEM_TEST_SEED={seed}");
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }

    /// A random stripe with its parity.
    fn stripe(&mut self, code: &ReedSolomon, length: usize) -> Vec<Vec<u8>> {
        let mut shards: Vec<_> = (0..code.total_shard_count()).map(|_| self.bytes(length)).collect();
        code.encode(&mut shards).unwrap();
        shards
    }

    /// Whether each shard is lost: `count` are.
    fn losses(&mut self, total: usize, count: usize) -> Vec<bool> {
        let mut lost = vec![false; total];
        while lost.iter().filter(|&&is_lost| is_lost).count() < count {
            lost[self.below(total)] = true;
        }
        lost
    }
}

fn matrix(name: &str) -> Options<'_> {
    Options { matrix: name, ..Options::default() }
}

/// Bits of a code word, by the shift-and-add of the field's definition.
fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        product ^= if b & 1 != 0 { a } else { 0 };
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

// tests/mod.rs of reed-solomon-erasure 6.0.0, test_one_encode; reedsolomon_test.go of klauspost/reedsolomon has the same.
#[test]
fn new_makes_the_bytes_of_reed_solomon_erasure() {
    let code = tandem_ec::galois_8::ReedSolomon::new(5, 5).unwrap();
    let data = [[0, 1], [4, 5], [2, 3], [6, 7], [8, 9]];
    let mut parity = [[0u8; 2]; 5];
    code.encode_sep(&data, &mut parity).unwrap();
    assert_eq!(parity, [[12, 13], [10, 11], [14, 15], [90, 91], [94, 95]]);
    let mut shards = [data, [[7; 2]; 5]].concat();
    code.encode(&mut shards).unwrap();
    assert_eq!(shards[5..], parity);
}

#[test]
fn presets_make_the_golden_parity_of_other_programs() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/golden.json")).unwrap();
    let text: String = text.split_whitespace().collect();
    let mut count = 0;
    for vector in text.split(r#""preset":""#).skip(1) {
        let value = |name: &str| vector.split_once(&format!("\"{name}\":")).unwrap().1;
        let number = |name: &str| value(name).split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<usize>().unwrap();
        let hex = |name: &str| value(name).split('"').nth(1).unwrap();
        let name = match vector.split('"').next().unwrap() {
            "raid6-pq" => "raid6",
            "zfs-raidz3" => "zfs-raidz",
            name => name,
        };
        if name.starts_with("jerasure-cauchy-") {
            continue; // packets
        }
        let (k, m) = (number("k"), number("m"));
        let rows: Vec<u8> = value("matrix")[..value("matrix").find("]]").unwrap()]
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|digits| digits.parse().ok())
            .collect();
        let code = ReedSolomon::with_options(k, m, Options { allow_non_mds: true, ..matrix(name) }).unwrap();
        let data: Vec<Vec<u8>> = (0..k).map(|i| (0..64).map(|j| (17 * i + 5 * j + 3 * i * j + 1) as u8).collect()).collect();
        let mut parity = vec![vec![0xee; 64]; m];
        code.encode_sep(&data, &mut parity).unwrap();
        for (r, shard) in parity.iter().enumerate() {
            for (j, &byte) in shard.iter().enumerate() {
                let expected = (0..k).fold(0, |sum, c| sum ^ multiply(rows[r * k + c], data[c][j]));
                assert_eq!(byte, expected, "{name} {k}+{m}, parity {r}, byte {j}");
            }
        }
        let first_16 = |shard: &[u8]| shard[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(first_16(&parity[0]), hex("first_parity_16"), "{name} {k}+{m}");
        assert_eq!(first_16(&parity[m - 1]), hex("last_parity_16"), "{name} {k}+{m}");
        count += 1;
    }
    assert_eq!(count, 36);
}

#[test]
fn any_losses_up_to_m_shards_are_rebuilt() {
    let mut random = Random::new();
    for round in 0..120 {
        let names = ["backblaze", "isal-cauchy", "zfec", "leopard16"];
        let name = names[round % names.len()];
        let (k, m) = (1 + random.below(20), 1 + random.below(8));
        let length = [2, 64, 130, 4096, 70000][random.below(5)];
        let code = ReedSolomon::with_options(k, m, matrix(name)).unwrap();
        let shards = random.stripe(&code, length);
        let lost_count = random.below(m + 1);
        let lost = random.losses(k + m, lost_count);
        let what = format!("{name} {k}+{m}, {length} bytes, lost {lost:?}");

        let mut kept: Vec<_> = shards.iter().zip(&lost).map(|(shard, &is_lost)| (!is_lost).then(|| shard.clone())).collect();
        let mut data_only = kept.clone();
        code.reconstruct(&mut kept).expect(&what);
        assert!(kept.iter().flatten().eq(&shards), "{what}");
        code.reconstruct_data(&mut data_only).expect(&what);
        for (i, shard) in data_only.iter().enumerate() {
            let expected = (i < k || !lost[i]).then_some(&shards[i]);
            assert_eq!(shard.as_ref(), expected, "reconstruct_data, shard {i}, {what}");
        }

        // Into memory of the caller, at an odd address.
        let mut buffers: Vec<_> = shards.iter().map(|shard| [&[0xaa], &shard[..], &[0xbb]].concat()).collect();
        let mut pairs: Vec<(&mut [u8], bool)> = Vec::new();
        for (buffer, &is_lost) in buffers.iter_mut().zip(&lost) {
            if is_lost {
                buffer[1..=length].fill(0xcc);
            }
            pairs.push((&mut buffer[1..=length], !is_lost));
        }
        code.reconstruct(&mut pairs).expect(&what);
        for (buffer, shard) in buffers.iter().zip(&shards) {
            assert_eq!(*buffer, [&[0xaa], &shard[..], &[0xbb]].concat(), "{what}");
        }
    }
}

#[test]
fn more_losses_than_m_are_an_error_and_write_nothing() {
    let code = ReedSolomon::new(4, 2).unwrap();
    let shards = Random::new().stripe(&code, 100);
    let mut kept: Vec<_> = shards.iter().cloned().map(Some).collect();
    kept[0] = None;
    kept[1] = None;
    kept[5] = None;
    let before = kept.clone();
    assert_eq!(code.reconstruct(&mut kept), Err(Error::TooFewShardsPresent));
    assert_eq!(kept, before);
    assert_eq!(code.reconstruct(&mut vec![None::<Vec<u8>>; 6]), Err(Error::TooFewShardsPresent));
}

#[test]
fn a_loss_that_the_matrix_cannot_repair_is_an_error_and_leaves_none() {
    let code = ReedSolomon::with_options(10, 4, Options { allow_non_mds: true, ..matrix("par1") }).unwrap();
    let shards = Random::new().stripe(&code, 8);
    let mut refused = 0;
    for pattern in (0u32..1 << 14).filter(|pattern| pattern.count_ones() == 4) {
        let mut kept: Vec<_> = shards.iter().cloned().map(Some).collect();
        (0..14).filter(|i| pattern >> i & 1 != 0).for_each(|i| kept[i] = None);
        match code.reconstruct(&mut kept) {
            Ok(()) => assert!(kept.iter().flatten().eq(&shards)),
            Err(Error::Tandem(code, message)) => {
                assert_eq!(code, status::NOT_RECOVERABLE, "{message}");
                assert_eq!(kept.iter().filter(|shard| shard.is_none()).count(), 4);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0);
    assert!(matches!(ReedSolomon::with_options(10, 4, matrix("par1")), Err(Error::Tandem(status::NOT_MDS, _))));
}

#[test]
fn verify_sees_every_changed_shard() {
    let mut random = Random::new();
    let code = ReedSolomon::new(6, 3).unwrap();
    let mut shards = random.stripe(&code, 1000);
    assert_eq!(code.verify(&shards), Ok(true));
    for i in 0..9 {
        let place = random.below(1000);
        shards[i][place] ^= 0x40;
        assert_eq!(code.verify(&shards), Ok(false), "shard {i}, byte {place}");
        shards[i][place] ^= 0x40;
    }
}

#[test]
fn update_makes_the_parity_that_encode_makes() {
    let mut random = Random::new();
    let code = ReedSolomon::new(5, 3).unwrap();
    let mut shards = random.stripe(&code, 777);
    for i in [0, 4, 2] {
        let new = random.bytes(777);
        let (data, parity) = shards.split_at_mut(5);
        code.update(i, &data[i], &new, parity).unwrap();
        shards[i] = new;
        assert_eq!(code.verify(&shards), Ok(true));
    }
    let (old, new, mut parity) = ([0; 4], [1; 4], vec![vec![0; 4]; 3]);
    assert_eq!(code.update(5, &old, &new, &mut parity), Err(Error::InvalidIndex));
    assert_eq!(code.update(0, &old, &new[..3], &mut parity), Err(Error::IncorrectShardSize));
    assert_eq!(code.update(0, &old, &new, &mut parity[..2]), Err(Error::TooFewParityShards));
    assert_eq!(parity, vec![vec![0; 4]; 3]);
}

#[test]
fn codes_out_of_range_have_the_errors_of_reed_solomon_erasure() {
    let error = |k, m| ReedSolomon::new(k, m).unwrap_err();
    assert_eq!(error(0, 3), Error::TooFewDataShards);
    assert_eq!(error(3, 0), Error::TooFewParityShards);
    assert_eq!(error(200, 57), Error::TooManyShards);
    assert_eq!(error(usize::MAX, 2), Error::TooManyShards);
    assert_eq!(ReedSolomon::new(200, 56).unwrap().total_shard_count(), 256);
    let wide = ReedSolomon::with_options(300, 40, matrix("leopard16")).unwrap();
    assert_eq!((wide.data_shard_count(), wide.parity_shard_count()), (300, 40));
    assert_eq!(ReedSolomon::with_options(65000, 537, matrix("leopard16")).unwrap_err(), Error::TooManyShards);
}

#[test]
fn shards_of_wrong_number_or_length_are_refused_before_anything_is_written() {
    let code = ReedSolomon::new(3, 2).unwrap();
    let stripe = |lengths: &[usize]| lengths.iter().map(|&length| vec![9u8; length]).collect::<Vec<_>>();
    let encode = |lengths: &[usize]| {
        let mut shards = stripe(lengths);
        let error = code.encode(&mut shards).unwrap_err();
        assert_eq!(shards, stripe(lengths));
        assert_eq!(code.verify(&shards).unwrap_err(), error);
        error
    };
    assert_eq!(encode(&[4; 4]), Error::TooFewShards);
    assert_eq!(encode(&[4; 6]), Error::TooManyShards);
    assert_eq!(encode(&[0; 5]), Error::EmptyShard);
    assert_eq!(encode(&[4, 4, 4, 4, 3]), Error::IncorrectShardSize);
    assert_eq!(encode(&[4, 3, 4, 4, 4]), Error::IncorrectShardSize);
    let sep = |data: usize, parity: usize| code.encode_sep(&vec![[1u8; 4]; data], &mut vec![[1u8; 4]; parity]).unwrap_err();
    assert_eq!(sep(2, 2), Error::TooFewDataShards);
    assert_eq!(sep(4, 2), Error::TooManyDataShards);
    assert_eq!(sep(3, 1), Error::TooFewParityShards);
    assert_eq!(sep(3, 3), Error::TooManyParityShards);
    let reconstruct = |mut shards: Vec<Option<Vec<u8>>>| {
        let before = shards.clone();
        let error = code.reconstruct(&mut shards).unwrap_err();
        assert_eq!(shards, before);
        error
    };
    let some = |length| Some(vec![1; length]);
    assert_eq!(reconstruct(vec![some(4), some(4), some(4), None]), Error::TooFewShards);
    assert_eq!(reconstruct(vec![None, some(4), some(4), some(5), None]), Error::IncorrectShardSize);
    assert_eq!(reconstruct(vec![None, some(0), some(0), some(0), None]), Error::EmptyShard);
    let mut short_buffer =
        vec![(vec![0; 3], false), (vec![1; 4], true), (vec![2; 4], true), (vec![3; 4], true), (vec![4; 4], true)];
    assert_eq!(code.reconstruct(&mut short_buffer), Err(Error::IncorrectShardSize));
}

/// Says that it is present, and then gives a slice of another length.
struct Liar(Vec<u8>);

impl ReconstructShard for Liar {
    fn length(&self) -> Option<usize> {
        Some(1 << 20)
    }

    fn get_or_initialize(&mut self, _length: usize) -> &mut [u8] {
        &mut self.0
    }
}

#[test]
fn a_shard_type_that_lies_about_its_length_cannot_reach_other_memory() {
    let code = ReedSolomon::new(1, 1).unwrap();
    let mut shards = [Liar(vec![1; 4]), Liar(vec![1; 5])];
    assert_eq!(code.reconstruct(&mut shards), Err(Error::IncorrectShardSize));
    let mut shards = [Liar(vec![1; 4]), Liar(vec![1; 4])];
    assert_eq!(code.reconstruct(&mut shards), Ok(()));
}

#[test]
fn a_refusal_of_the_library_has_its_sentence() {
    let refused = |options| match ReedSolomon::with_options(4, 2, options).unwrap_err() {
        Error::Tandem(code, message) => (code, message),
        other => panic!("{other}"),
    };
    let (code, message) = refused(matrix("rot13"));
    assert!(code == status::INVALID_ARGUMENT && message.contains("rot13") && message.contains("isal-cauchy"), "{message}");
    let (code, message) = refused(matrix("a\0b"));
    assert!(code == status::INVALID_ARGUMENT && message.contains("zero byte"), "{message}");
    let (code, message) = refused(Options { backend: "abacus", ..Options::default() });
    assert!(code == status::UNAVAILABLE && message.contains("abacus"), "{message}");
    let error: Box<dyn std::error::Error + Send + Sync> = ReedSolomon::new(0, 1).unwrap_err().into();
    assert!(error.to_string().contains("data shards"));
}

#[test]
fn threads_share_a_code() {
    let one_thread = ReedSolomon::with_options(10, 4, Options { threads: 1, backend: "cpu", ..Options::default() }).unwrap();
    for code in [ReedSolomon::new(10, 4).unwrap(), one_thread] {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let code = code.clone();
                thread::spawn(move || {
                    let mut random = Random(worker + 1);
                    for length in [1, 1000, 100_000] {
                        let shards = random.stripe(&code, length);
                        let mut kept: Vec<_> = shards.iter().cloned().map(Some).collect();
                        kept[worker as usize] = None;
                        kept[13 - worker as usize] = None;
                        code.reconstruct(&mut kept).unwrap();
                        assert!(kept.iter().flatten().eq(&shards));
                    }
                })
            })
            .collect();
        drop(code);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }
}
