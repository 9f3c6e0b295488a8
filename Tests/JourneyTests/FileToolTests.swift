import Base
import Glibc
import TestSupport
import Testing

/// Programs that know nothing of mediafs, on files that are fetched as they read.
@Suite struct FileToolTests {
  private static let odd = Int64(3 << 20) + 12_345

  @Test(arguments: Traveller.all) func readersAtRandomOffsetsGetTheRightBytes(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        origin.configure { $0.latency = 0.01 }
        let size = Int64(50 << 20) + 123
        origin.add("/big.bin", size: size)
        let original = try journey.original("big.bin", size: size)
        try journey.mount(origin.url("/big.bin") + "\n")
        var random = SeededRandom.fromEnvironment()
        let seeds = (0..<8).map { _ in String(random.next() >> 1) }
        let readers = try seeds.map { seed in
          try journey.start(["/usr/bin/python3", "-c", randomReader, journey.at("big.bin"), original, seed])
        }
        for reader in readers {
          let result = try #require(reader.wait(timeout: 200), "a reader hangs")
          #expect(result.succeeded, "\(result.errors)")
          #expect(result.output == "60 reads\n")
        }
        try journey.succeed(["cmp", journey.at("big.bin"), original])
        try journey.wait(for: "complete", "big.bin")
        try journey.succeed(["cmp", journey.kept("big.bin"), original])
        let coverage = origin.log.coverage(of: "/big.bin")
        #expect(coverage.distinctBytes == size)
        // On a busy machine transfers seem to stall, and what was under way comes again. The bench holds 1.01.
        #expect(Double(coverage.bytesSent) <= Double(size) * 1.05, "sent \(coverage.bytesSent) of \(size)")
      }
    }
  }

  @Test(arguments: Traveller.all) func everyToolReadsTheSame(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        let names = ["cp", "cmp", "sum", "tar", "dd", "map", "dup", "tail"].map { "\($0).bin" }
        for name in names {
          origin.add("/\(name)", size: Self.odd)
          try journey.original(name, size: Self.odd)
        }
        try journey.mount(
          names.map { "\(origin.url("/\($0)"))\n  dir=tools/\($0.dropLast(4))\n" }.joined())
        let at = { (name: String) in journey.at("tools/\(name)/\(name).bin") }
        let original = { (name: String) in journey.folder.file("originals/\(name).bin") }

        try journey.succeed(["cp", at("cp"), journey.folder.file("copy")])
        try journey.succeed(["cmp", original("cp"), journey.folder.file("copy")])
        try journey.succeed(["cmp", at("cmp"), original("cmp")])
        let sums = try journey.succeed(["sha256sum", at("sum"), original("sum")]).split(separator: "\n")
        #expect(sums.count == 2 && sums[0].prefix(64) == sums[1].prefix(64))
        // A file whose blocks were counted as none would be archived as one hole.
        try journey.shell(
          #"tar -S -cf - -C "$1" tar.bin | tar -xOf - | cmp - "$2""#, journey.at("tools/tar"), original("tar"))
        // Sizes and offsets that no page begins or ends at, the last one across the end.
        for (block, skip, count) in [
          (4097, 3, 5), (1, 777_777, 100), (100_003, 7, 2), (65_535, 47, 9), (513, 6_000, 4_000),
        ] {
          try journey.shell(
            #"cmp <(dd if="$1" bs=$3 skip=$4 count=$5 status=none) <(dd if="$2" bs=$3 skip=$4 count=$5 status=none)"#,
            at("dd"), original("dd"), "\(block)", "\(skip)", "\(count)")
        }
        try journey.succeed(["cmp", at("tail"), original("tail"), "--ignore-initial=\(Self.odd - 1)"])
        #expect(try journey.python(mapReader, at("map"), original("map")) == "same\n")
        #expect(try journey.python(duplicatedReader, at("dup"), original("dup")) == "same\n")
      }
    }
  }

  @Test(arguments: Traveller.all) func foldersAreListed(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        for number in 0..<40 { origin.add("/n\(number).mp3", size: Int64(1000 + number)) }
        origin.add("/deep.mkv", size: 4242)
        let flat = (0..<40).map { origin.url("/n\($0).mp3") + "\n" }.joined()
        try journey.mount(flat + origin.url("/deep.mkv") + "\n  dir=a/b c/d\n")

        let long = try journey.succeed(["ls", "-lR", journey.mountpoint])
        for number in 0..<40 {
          let line = try #require(long.split(separator: "\n").first { $0.hasSuffix(" n\(number).mp3") })
          let fields = line.split(separator: " ")
          #expect(fields[0] == "-r--r--r--" && fields[4] == "\(1000 + number)", "\(line)")
        }
        #expect(long.contains("a/b c/d:") && long.contains("4242"))
        #expect(long.split(separator: "\n").contains { $0.hasPrefix("drwxr-xr-x") && $0.hasSuffix(" a") })

        let found = try journey.succeed(["find", journey.mountpoint, "-type", "f", "-printf", "%P %s %m\\n"])
        #expect(found.split(separator: "\n").count == 41)
        #expect(found.contains("a/b c/d/deep.mkv 4242 444\n"))
        // mtime is the origin's Last-Modified: that of the test origin's first generation.
        #expect(try journey.succeed(["stat", "-c", "%Y", journey.at("n7.mp3")]) == "1700003600\n")
        #expect(try journey.succeed(["perl", "-e", rewinder, journey.mountpoint]) == "same 43\n")

        for change in [["touch", journey.at("new")], ["rm", "-f", journey.at("n1.mp3")], ["mkdir", journey.at("x")]] {
          let refused = try journey.run(change)
          #expect(
            !refused.succeeded && refused.errors.contains("Read-only file system"), "\(change): \(refused.errors)")
        }
        let written = try journey.run(["sh", "-c", #"echo x >>"$1""#, "sh", journey.at("n1.mp3")])
        #expect(!written.succeeded && written.errors.contains("Read-only file system"), "\(written.errors)")
      }
    }
  }

  /// `cp -r` copies modes, also those of folders: whoever owns the copy can remove it.
  @Test(arguments: Traveller.all) func aCopiedTreeCanBeRemoved(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        for name in ["a.mp3", "b.mp3"] { origin.add("/\(name)", size: 1000) }
        try journey.mount("\(origin.url("/a.mp3"))\n\(origin.url("/b.mp3"))\n  dir=folder/within\n")
        let copy = journey.folder.file("copy")
        try journey.succeed(["cp", "-r", journey.mountpoint, copy])
        try journey.succeed(["cmp", "\(copy)/folder/within/b.mp3", journey.at("folder/within/b.mp3")])
        #expect(try journey.succeed(["stat", "-c", "%a", "\(copy)/folder", "\(copy)/a.mp3"]) == "755\n444\n")
        try journey.succeed(["rm", "-rf", copy])
        #expect(access(copy, F_OK) != 0)
        // To write in the mount itself is as impossible as before.
        let refused = try journey.run(["rm", "-rf", journey.at("folder")])
        #expect(!refused.succeeded && refused.errors.contains("Read-only file system"), "\(refused.errors)")
      }
    }
  }

  /// What monitors look at: the names count as used, and of inodes there is no end.
  @Test func inodesAreFree() throws {
    try withJourney { journey in
      try journey.mount((1...7).map { "http://127.0.0.1:1/\($0).mp3\n" }.joined())
      let line = try #require(try journey.succeed(["df", "-i", journey.mountpoint]).split(separator: "\n").last)
      let fields = line.split(separator: " ")
      #expect(fields.count >= 5 && fields[2] == "7" && fields[4] == "1%", "\(line)")
    }
  }
}

extension Journey {
  /// Writes what the origin serves at `/name` to the disk, and gives its path.
  @discardableResult
  func original(_ name: String, size: Int64) throws -> String {
    try folder.write(Pattern.bytes(name: "/\(name)", offset: 0, count: Int(size)), to: "originals/\(name)")
  }

  /// A line of bash; `$1` and so on are the arguments.
  @discardableResult
  func shell(
    _ line: String, _ arguments: String..., sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> String {
    try succeed(["bash", "-euo", "pipefail", "-c", line, "bash"] + arguments, sourceLocation: sourceLocation)
  }
}

private let randomReader = """
  import os, random, sys
  path, original, seed = sys.argv[1:]
  choose = random.Random(int(seed))
  mounted, there = os.open(path, os.O_RDONLY), os.open(original, os.O_RDONLY)
  size = os.fstat(there).st_size
  assert os.fstat(mounted).st_size == size
  reads = 0
  for _ in range(60):
      offset, count = choose.randrange(size + 1000), choose.choice([1, 511, 4096, 70001, 300007])
      wanted, got = os.pread(there, count, offset), os.pread(mounted, count, offset)
      assert got == wanted, f'seed {seed}: {count} bytes at {offset}: {len(got)} came, {len(wanted)} are right'
      reads += 1
  print(reads, 'reads')
  """

private let mapReader = """
  import mmap, os, sys
  with open(sys.argv[1], 'rb') as file, open(sys.argv[2], 'rb') as original:
      wanted = original.read()
      with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
          assert len(memory) == len(wanted)
          for offset in (len(wanted) - 1, 2_000_001, 4095, 0):
              assert memory[offset:offset + 5000] == wanted[offset:offset + 5000], offset
          assert memory[:] == wanted
  print('same')
  """

private let duplicatedReader = """
  import os, sys
  wanted = open(sys.argv[2], 'rb').read()
  first = os.open(sys.argv[1], os.O_RDONLY)
  second = os.dup(first)
  os.lseek(first, 1_000_001, os.SEEK_SET)
  assert os.lseek(second, 0, os.SEEK_CUR) == 1_000_001
  assert os.read(first, 1000) == wanted[1_000_001:1_001_001]
  os.close(first)
  assert os.read(second, 1000) == wanted[1_001_001:1_002_001]
  child = os.fork()
  if child == 0:
      os._exit(0 if os.read(second, 10) == wanted[1_002_001:1_002_011] else 1)
  assert os.waitpid(child, 0)[1] == 0
  assert os.read(second, 10) == wanted[1_002_011:1_002_021]
  print('same')
  """

private let rewinder = """
  opendir(my $folder, $ARGV[0]) or die "$!";
  my @first = readdir($folder);
  rewinddir($folder);
  my $one = readdir($folder);
  my $place = telldir($folder);
  my @rest = readdir($folder);
  seekdir($folder, $place);
  my @again = readdir($folder);
  print "@first" eq "$one @rest" && "@rest" eq "@again" ? "same" : "other", " ", scalar(@first), "\\n";
  """
