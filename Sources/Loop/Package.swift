// swift-tools-version: 6.2
import PackageDescription

// One thread, its tasks, sockets, protocols and formats. Does not know radios, and has no Foundation.
//
// A product for each module: a dependent gets no C library that it does not use.

// As in the main Package.swift, which has the reasons.
#if compiler(>=6.3)
  let boundedTypeChecks: [SwiftSetting] = [.unsafeFlags(["-Xfrontend", "-solver-scope-threshold=50000"])]
#else
  let boundedTypeChecks: [SwiftSetting] = []
#endif
let strict: [SwiftSetting] =
  [
    .treatAllWarnings(as: .error), .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .unsafeFlags(["-Xfrontend", "-disable-implicit-string-processing-module-import"]),
  ] + boundedTypeChecks

// As in the main Package.swift.
let optimized: [SwiftSetting] = [.unsafeFlags(["-O", "-assert-config", "Debug"], .when(configuration: .debug))]

func module(_ name: String, _ needs: [Target.Dependency] = [], in folder: String = "") -> Target {
  .target(name: name, dependencies: needs, path: folder + name, swiftSettings: strict + optimized)
}

/// The module of a C library.
func library(_ name: String, _ package: String? = nil, apt: String? = nil) -> Target {
  .systemLibrary(name: name, path: name, pkgConfig: package, providers: apt.map { [.apt([$0])] })
}

func tests(_ name: String, _ needs: [Target.Dependency]) -> Target {
  .testTarget(name: name, dependencies: needs, swiftSettings: strict)
}

let modules: [Target] = [
  // Pure.
  module("Timing"), module("UntrustedText"), module("PrometheusText"), module("JSON"),
  module("TOML", ["UntrustedText"]),

  library("CLinux"), library("CSQLite", "sqlite3", apt: "libsqlite3-dev"),
  library("COpenSSL", "openssl", apt: "libssl-dev"), library("CZlib", "zlib", apt: "zlib1g-dev"),
  library("CSodium", "libsodium", apt: "libsodium-dev"), library("CPostgres", "libpq", apt: "libpq-dev"),
  library("CBluetooth", apt: "libbluetooth-dev"),
  // libdbus-1 and libcurl, loaded when they are first needed.
  .target(name: "CDBus", path: "CDBus"), .target(name: "CCurl", path: "CCurl"),
  module("SQLite", ["CSQLite"]),
  module("Deflate", ["CZlib"]),

  module("Console", ["UntrustedText"]),
  module("EventLoop", ["CLinux", "UntrustedText", "Timing"]),
  module("ServiceManager", ["CLinux", "UntrustedText", "Timing"]),
  module("ProxyTunnel", ["CCurl", "UntrustedText", "EventLoop", "Timing"]),
  module("Sockets", ["COpenSSL", "EventLoop"]),
  module(
    "HTTP", ["CLinux", "COpenSSL", "Deflate", "UntrustedText", "EventLoop", "ProxyTunnel", "Sockets", "Timing"]),
  module("MQTT", ["UntrustedText", "EventLoop", "HTTP", "ProxyTunnel", "Sockets", "Timing"]),
  module("DBus", ["CDBus", "EventLoop", "Timing"]),

  module("LoopTestSupport", ["EventLoop", "Timing"], in: "Tests/"),
]

let package = Package(
  name: "Loop",
  products: modules.map { .library(name: $0.name, targets: [$0.name]) },
  targets: modules + [
    tests("TimingTests", ["Timing"]),
    tests("UntrustedTextTests", ["UntrustedText", "JSON"]),
    tests("LanguageTests", ["JSON", "TOML"]),
    tests("EventLoopTests", ["CLinux", "EventLoop", "LoopTestSupport", "Sockets", "Timing"]),
    tests("ServiceManagerTests", ["CLinux", "LoopTestSupport", "ServiceManager"]),
    tests("ProxyTunnelTests", ["EventLoop", "LoopTestSupport", "ProxyTunnel", "Timing"]),
    tests("HTTPTests", ["CLinux", "Deflate", "EventLoop", "HTTP", "LoopTestSupport", "Sockets", "Timing"]),
    tests("MQTTTests", ["EventLoop", "LoopTestSupport", "MQTT", "Timing"]),
    tests("DBusTests", ["DBus", "EventLoop", "LoopTestSupport"]),
  ],
  swiftLanguageModes: [.v6]
)
