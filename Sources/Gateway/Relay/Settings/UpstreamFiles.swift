// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import ServiceManager
import Sockets

/// Files that an upstream's settings name: tokens, passwords, certificates, a hook's program.
extension UpstreamSettings {
  /// A file that its upstream cannot use. It stops this upstream, and nothing else.
  public struct FileTrouble: Error, Equatable, CustomStringConvertible, Sendable {
    /// The key of the configuration that names it.
    public let key: String
    public let reason: String

    public var description: String { "\(key): \(reason)" }
  }

  /// The identity of a file when its upstream was built: another file, or other content, makes another upstream.
  public struct FileStamp: Equatable, Sendable {
    let (device, inode): (UInt64, UInt64)
    let size: Int64
    let (seconds, nanoseconds): (Int64, Int64)
  }

  /// Keys of the configuration that name files, and these names. A hook's program is not among them.
  public var namedFiles: [(key: String, name: String)] {
    var files: [(String, String?)] = [("token_file", tokenFile), ("ca_file", authorities)]
    switch kind {
    case .webhook(let secretFile, _, _, _): files.append(("secret_file", secretFile))
    case .mqtt(let mqtt):
      files += [
        ("password_file", mqtt.passwordFile), ("cert_file", mqtt.certificate), ("key_file", mqtt.key),
      ]
    case .hub, .hook, .unreadable: break
    }
    return files.compactMap { key, name in name.map { (key, $0) } }
  }

  /// `nil` for a file that is not there.
  func fileStamps() -> [FileStamp?] {
    namedFiles.map { _, name in
      var facts = stat()
      guard stat(Credential.location(name), &facts) == 0 else { return nil }
      return FileStamp(
        device: UInt64(facts.st_dev), inode: UInt64(facts.st_ino), size: Int64(facts.st_size),
        seconds: Int64(facts.st_mtim.tv_sec), nanoseconds: Int64(facts.st_mtim.tv_nsec))
    }
  }

  /// Files that keep the upstream from working, each with its reason. The check opens and reads them like a carrier. `isDaemon`: this process will
  /// use them, so its rights count, too.
  public func fileTroubles(isDaemon: Bool) -> [FileTrouble] {
    if case .hook(let hook) = kind {
      let troubles = Self.programTroubles(hook)
      return troubles.isEmpty && isDaemon ? Self.userTroubles(hook) : troubles
    }
    var troubles: [FileTrouble] = []
    for (key, name) in namedFiles {
      let location = Credential.location(name)
      if let words = Self.unreadable(location) {
        troubles.append(FileTrouble(key: key, reason: "\(location) \(words)"))
      } else if ["token_file", "secret_file", "password_file"].contains(key) {
        let secret = SecretFile.read(name)
        if secret == nil {
          troubles.append(FileTrouble(key: key, reason: "the first line of \(location) is empty, or not UTF-8"))
        } else if key == "token_file", let secret, !SecretFile.isToken(secret) {
          let reason = "the first line of \(location) has a blank or a character that no token has"
          troubles.append(FileTrouble(key: key, reason: reason))
        }
      }
    }
    return troubles.isEmpty ? tlsTroubles() : troubles
  }

  /// Why the file cannot be read; `nil`: it can be read.
  private static func unreadable(_ location: String) -> String? {
    // A pipe must not hold up the daemon.
    let descriptor = open(location, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else { return "cannot be read: \(String(cString: strerror(errno)))" }
    defer { close(descriptor) }
    var facts = stat()
    guard fstat(descriptor, &facts) == 0, facts.st_mode & S_IFMT == S_IFREG else { return "is not a file" }
    return nil
  }

  private func tlsTroubles() -> [FileTrouble] {
    guard usesTLS else { return [] }
    var (certificate, key): (String?, String?)
    if case .mqtt(let mqtt) = kind { (certificate, key) = (mqtt.certificate, mqtt.key) }
    guard authorities != nil || certificate != nil else { return [] }
    do {
      _ = try TLSContext(authorities: authorities, certificate: certificate, key: key)
      return []
    } catch {
      let name =
        switch error.part {
        case .authorities: "ca_file"
        case .certificate: "cert_file"
        case .key: key == nil ? "cert_file" : "key_file"
        }
      return [FileTrouble(key: name, reason: error.description)]
    }
  }

  private static func programTroubles(_ hook: HookSettings) -> [FileTrouble] {
    if let user = hook.user, getpwnam(user) == nil {
      return [FileTrouble(key: "user", reason: "user \"\(user)\" does not exist")]
    }
    guard let program = hook.run.first, access(program, X_OK) == 0 else {
      return [FileTrouble(key: "run", reason: "\(hook.run.first ?? "") does not exist, or is not executable")]
    }
    return []
  }

  private static func userTroubles(_ hook: HookSettings) -> [FileTrouble] {
    guard let user = hook.otherUser else {
      guard geteuid() == 0 else { return [] }
      let reason = "the daemon runs as root, which a program that gets data from the air must not: set user"
      return [FileTrouble(key: "user", reason: reason)]
    }
    guard meshpost_may_change_user() != 1 else { return [] }
    let reason =
      "the daemon is not allowed to run a program as \(user): omit this to run it as the daemon's user"
    return [FileTrouble(key: "user", reason: reason)]
  }
}

extension UpstreamSettings.HookSettings {
  /// The hook's user, if it is not the daemon's own.
  var otherUser: String? { user.flatMap { getpwnam($0)?.pointee.pw_uid == geteuid() ? nil : $0 } }
}
