// SPDX-License-Identifier: Apache-2.0
// Folders of shard files, and files that get their names when they are complete.
#pragma once

#include "base/folder.hpp"
#include "base/pending_file.hpp"
#include "files/error.hpp"
#include "files/format.hpp"
#include "files/io.hpp"

namespace tandem::files {

using base::add_folder;
using base::Folder;
using base::FolderHold;
using base::FolderLocked;
using base::Folders;
using base::FoldersLock;
using base::FolderUse;
using base::Lock;
using base::lock_file;
using base::LockWait;
using base::make_folder;
using base::ManyFolders;
using base::open_to_lock;
using base::PendingFile;

static_assert(kModeUnknown > 0777);  // to a PendingFile

}  // namespace tandem::files
