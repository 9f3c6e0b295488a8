import Base
import Glibc
import Reading
import Testing

@testable import Mount

/// The tests on a real mount, one after the other.
@Suite(.serialized) struct Tests {}

extension Tests {
  @Suite("The tree seen through a real mount")
  struct Listing {
    @Test("ls, find and stat")
    func programs() throws {
      let mount = try RealMount(Tree.sound) {
        $0.uid = 1234
        $0.gid = 4321
      }
      defer { mount.end() }
      let names = ["big.bin", "empty", "folder", "late.bin", "many", "plain.bin", "sizeless.bin", "stream.bin"]
      #expect(mount.sh("ls | sort").lines == names)
      #expect(mount.sh("find . -type f | wc -l; find folder many -type f | wc -l").lines == ["3007", "3001"])
      #expect(
        mount.sh("ls -lR . | grep -c '^-r--r--r-- 1 1234 4321'; ls many | sort -u | wc -l").lines == ["3007", "3000"])
      let stat = mount.sh("stat -c '%a %u %g %s %b %Y %Z %X %h %i' plain.bin folder empty")
      #expect(
        stat.lines == [
          "444 1234 4321 5243003 10241 1000000000 1000000000 1700000000 1 2",
          "755 1234 4321 0 0 1000000000 1000000000 1700000000 1 100",
          "444 1234 4321 0 0 1000000000 1000000000 1700000000 1 4",
        ])
      #expect(mount.sh("find folder/. -printf '%i %f\n'").lines == ["100 .", "101 Ünder café.txt"])
      #expect(mount.sh("cat 'folder/Ünder café.txt' | wc -c; cat folder/../empty").lines == ["12"])
      #expect(mount.sh("cat plain.bin/x").output.hasSuffix("Not a directory\n"))
      #expect(mount.sh("stat -f -c '%S %b %f %a %l' .").output == "4096 1000 500 400 255\n")
      #expect(mount.sh("df --output=iused,ipcent .").lines.last?.split(separator: " ") == ["77", "1%"])
      #expect(mount.sh("test -r plain.bin && test ! -w plain.bin && test ! -x plain.bin && test -x folder").status == 0)
    }

    @Test("The umask is taken from files and folders")
    func umask() throws {
      let mount = try RealMount(Tree.sound) { $0.umask = 0o027 }
      defer { mount.end() }
      #expect(mount.sh("stat -c %a plain.bin folder .").output == "440\n750\n750\n")
    }

    @Test("Telldir, seekdir and rewinddir in a folder of many buffers")
    func seeking() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      let folder = try #require(opendir("\(mount.path)/many"))
      defer { closedir(folder) }
      func rest() -> [(position: Int, name: String)] {
        var names: [(Int, String)] = []
        while true {
          let position = telldir(folder)
          guard let entry = readdir(folder) else { return names }
          let name = withUnsafePointer(to: &entry.pointee.d_name) {
            String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
          }
          names.append((position, name))
        }
      }
      let all = rest()
      #expect(all.count == 3002 && Set(all.map(\.name)).count == 3002)
      #expect(all.prefix(3).map(\.name) == [".", "..", "file 0"])
      for index in [0, 1, 2, 3, 57, 1500, 3001] {
        seekdir(folder, all[index].position)
        #expect(rest().map(\.name) == all[index...].map(\.name))
      }
      rewinddir(folder)
      #expect(rest().map(\.name) == all.map(\.name))
      #expect(Set(all.map(\.position)).count == 3002)
    }

    @Test("A listing that is read again comes from the kernel's cache, and is the same")
    func listedTwice() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      let first = mount.sh("ls -f many | sort")
      #expect(mount.sh("ls -f many | sort") == first)
      #expect(first.output.split(separator: "\n").count == 3002)
    }

    @Test("Extended attributes, with the protocol of sizes")
    func extendedAttributes() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      let path = "\(mount.path)/plain.bin"
      var value = [UInt8](repeating: 0, count: 10)
      #expect(getxattr(path, "user.mime_type", nil, 0) == 10)
      #expect(getxattr(path, "user.mime_type", &value, 10) == 10)
      #expect(value == Array("audio/flac".utf8))
      #expect(getxattr(path, "user.mime_type", &value, 9) == -1 && errno == ERANGE)
      #expect(getxattr(path, "user.empty", &value, 10) == 0)
      #expect(getxattr(path, "user.none", &value, 10) == -1 && errno == ENODATA)
      #expect(getxattr(path, "security.capability", &value, 10) == -1 && errno == ENODATA)
      #expect(getxattr(path, "trusted.x", &value, 10) == -1 && errno == ENODATA)
      #expect(getxattr(path, "system.posix_acl_access", &value, 10) == -1 && errno == EOPNOTSUPP)
      var names = [CChar](repeating: 0, count: 26)
      #expect(listxattr(path, nil, 0) == 26)
      #expect(listxattr(path, &names, 26) == 26)
      #expect(names == "user.empty\0user.mime_type\0".utf8.map { CChar(bitPattern: $0) })
      #expect(listxattr(path, &names, 25) == -1 && errno == ERANGE)
    }

    @Test("Whatever would write is EROFS")
    func writes() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      let (file, new) = ("\(mount.path)/plain.bin", "\(mount.path)/new")
      let calls: [(String, () -> Int32)] = [
        ("open for writing", { open(file, O_WRONLY) }), ("open for both", { open(file, O_RDWR) }),
        ("open and truncate", { open(file, O_RDONLY | O_TRUNC) }), ("create", { creat(new, 0o644) }),
        ("truncate", { truncate(file, 0) }), ("chmod", { chmod(file, 0o777) }), ("chown", { chown(file, 1, 1) }),
        ("utimes", { utimes(file, nil) }), ("mkdir", { mkdir(new, 0o755) }),
        ("rmdir", { rmdir("\(mount.path)/folder") }),
        ("unlink", { unlink(file) }), ("rename", { rename(file, new) }), ("link", { link(file, new) }),
        ("symlink", { symlink(file, new) }), ("mknod", { mknod(new, S_IFIFO | 0o644, 0) }),
        ("setxattr", { setxattr(file, "user.x", "x", 1, 0) }), ("removexattr", { removexattr(file, "user.mime_type") }),
        ("access", { access(file, W_OK) }),
      ]
      for (name, call) in calls {
        errno = 0
        let result = call()
        #expect(result == -1 && errno == EROFS, "\(name): \(result), \(Errno.current)")
      }
      let programs = mount.sh(
        "touch new; mv plain.bin x; rm -f empty; chmod 600 empty; dd of=empty count=0 status=none")
      #expect(programs.lines.count == 5)
      #expect(programs.lines.allSatisfy { $0.hasSuffix("Read-only file system") })
    }

    @Test("Bytes that the kernel is to forget are asked for again, also through a handle that is open")
    func forgottenPages() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      let file = open("\(mount.path)/plain.bin", O_RDONLY)
      defer { close(file) }
      func reads() -> Int { mount.fileSystem.state.withLock { $0.reads } }
      func read(_ offset: Int64) -> Bool {
        var byte: UInt8 = 0
        return pread(file, &byte, 1, Int(offset)) == 1 && byte == pattern(2, offset)
      }
      #expect(read(0) && read(2_000_000))
      usleep(200_000)  // for what is read ahead
      let before = reads()
      #expect(read(0) && read(2_000_000) && reads() == before)  // kept by the kernel
      mount.session.forgetPages(of: 2, ByteRange(0, 1000))
      mount.session.forgetPages(of: 99_999, ByteRange(0, 1000))
      #expect(eventually { read(0) && reads() > before })
      let after = reads()
      #expect(read(2_000_000) && reads() == after, "more was forgotten than was to be")
    }

    @Test("A name that leads elsewhere is looked up again after it was invalidated")
    func invalidation() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      let before = mount.sh("stat -c '%i %s' plain.bin; find . -name plain.bin -printf '%i\\n'")
      #expect(before.lines == ["2 5243003", "2"])
      let old = open("\(mount.path)/plain.bin", O_RDONLY)
      defer { close(old) }
      mount.fileSystem.state.withLock { state in
        state.nodes[2]?.parent = 0
        state.nodes[20_000] = .init(inode: 20_000, parent: 1, name: "plain.bin", size: 77)
        state.nodes[20_001] = .init(inode: 20_001, parent: 1, name: "added", size: 78)
      }
      #expect(mount.sh("stat -c '%i %s' plain.bin").output == "2 5243003\n")  // kept by the kernel
      for name in ["plain.bin", "plain.bin", "added", "never known"] {
        mount.session.invalidate(parent: rootInode, name: name, isChanged: false)
      }
      #expect(eventually { mount.sh("stat -c '%i %s' plain.bin added").output == "20000 77\n20001 78\n" })
      #expect(mount.sh("find . -name plain.bin -printf '%i\\n'").lines == ["20000"])
      var byte: UInt8 = 0
      #expect(pread(old, &byte, 1, 5_000_000) == 1 && byte == pattern(2, 5_000_000))
    }
  }
}
